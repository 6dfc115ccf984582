// Loops test before the first iteration, so that they may run no times; each costs one phi and one compare.
#include "codegen/llvm/loops.h"

namespace sheaf::codegen {

void emit_loop(llvm::IRBuilder<>& b, llvm::Value* first, llvm::Value* end, std::int64_t step,
               llvm::function_ref<void(llvm::Value*)> body) {
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::Function* function = before->getParent();
  auto* head = llvm::BasicBlock::Create(b.getContext(), "loop", function);
  auto* after = llvm::BasicBlock::Create(b.getContext(), "after", function);
  b.CreateCondBr(b.CreateICmpSLT(first, end), head, after);
  b.SetInsertPoint(head);
  llvm::PHINode* i = b.CreatePHI(first->getType(), 2);
  i->addIncoming(first, before);
  body(i);
  llvm::Value* next =
      b.CreateAdd(i, llvm::ConstantInt::get(first->getType(), step), "", /*HasNUW=*/true, /*HasNSW=*/true);
  i->addIncoming(next, b.GetInsertBlock());
  b.CreateCondBr(b.CreateICmpSLT(next, end), head, after);
  b.SetInsertPoint(after);
}

void emit_if(llvm::IRBuilder<>& b, llvm::Value* condition, llvm::function_ref<void()> then,
             llvm::function_ref<void()> otherwise) {
  llvm::Function* function = b.GetInsertBlock()->getParent();
  auto* then_block = llvm::BasicBlock::Create(b.getContext(), "then", function);
  auto* after = llvm::BasicBlock::Create(b.getContext(), "after", function);
  auto* else_block = otherwise ? llvm::BasicBlock::Create(b.getContext(), "else", function, after) : after;
  b.CreateCondBr(condition, then_block, else_block);
  b.SetInsertPoint(then_block);
  then();
  b.CreateBr(after);
  if (otherwise) {
    b.SetInsertPoint(else_block);
    otherwise();
    b.CreateBr(after);
  }
  b.SetInsertPoint(after);
}

llvm::AllocaInst* emit_slot(llvm::IRBuilder<>& b, llvm::Type* type) {
  llvm::BasicBlock& entry = b.GetInsertBlock()->getParent()->getEntryBlock();
  return llvm::IRBuilder<>(&entry, entry.begin()).CreateAlloca(type);
}

}  // namespace sheaf::codegen
