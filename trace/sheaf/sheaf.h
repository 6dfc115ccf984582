// All of Sheaf's API.
#pragma once

#include "sheaf/array.h"
#include "sheaf/control.h"
#include "sheaf/custom.h"
#include "sheaf/data.h"
#include "sheaf/device.h"
#include "sheaf/grad.h"
#include "sheaf/jacobian.h"
#include "sheaf/jit.h"
#include "sheaf/loader.h"
#include "sheaf/nn.h"
#include "sheaf/ops.h"
#include "sheaf/optim.h"
#include "sheaf/print.h"
#include "sheaf/random.h"
#include "sheaf/tree.h"
#include "sheaf/vmap.h"
