// Counting loops and branches in LLVM IR.
#pragma once

#include <cstdint>

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/IR/IRBuilder.h"

namespace sheaf::codegen {

/// Calls `body(i)` in a loop over i = first, first + step, ... < end; signed, of any integer type.
void emit_loop(llvm::IRBuilder<>& builder, llvm::Value* first, llvm::Value* end, std::int64_t step,
               llvm::function_ref<void(llvm::Value*)> body);

/// Runs `then` where `condition` holds, and otherwise `otherwise` if there is one.
void emit_if(llvm::IRBuilder<>& builder, llvm::Value* condition, llvm::function_ref<void()> then,
             llvm::function_ref<void()> otherwise = nullptr);

/// A stack slot in the function's entry block, where it can be promoted to a register.
llvm::AllocaInst* emit_slot(llvm::IRBuilder<>& builder, llvm::Type* type);

}  // namespace sheaf::codegen
