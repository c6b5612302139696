#pragma once

#include <source_location>
#include <type_traits>

#include "kernels/dispatch.hpp"
#include "kernels/operator.hpp"

#if STOWAGE_HAVE_CUDA
#include "execution/cuda_check.hpp"
#endif

namespace stowage::kernels {

/// Calls `launch()` for an operator whose storage type on a GPU is S. It returns the cudaError_t of
/// its launches as an int, so that headers of launchers need no CUDA; a build without CUDA never
/// asks for their code, since S is part of the call.
/// @throws Error if the launch fails, or if S is double
template <class S, class Launch>
void launch_on_gpu([[maybe_unused]] std::string_view op, [[maybe_unused]] const Launch& launch,
                   [[maybe_unused]] void* stream) {
#if STOWAGE_HAVE_CUDA
  if constexpr (std::is_same_v<S, double>) {
    throw execution::Error(execution::Exit::runtime,
                           fmt::format("{}: fp64 is for the host backend only", op));
  } else if (const int code = launch.template operator()<S>(stream); code != 0) {
    execution::throw_cuda_failed(op, static_cast<cudaError_t>(code),
                                 std::source_location::current());
  }
#else
  throw_no_cuda(op);
#endif
}

/// Runs an operator that has device code: enqueues `reference.operator()<S>()` on the host, calls
/// `launch.operator()<S>(stream)` at once on a GPU. S is the type of `storage`.
/// @throws Error as launch_on_gpu
template <class Reference, class Launch>
void run(execution::Queue& queue, std::string_view op, execution::Dtype storage,
         Reference reference, const Launch& launch) {
  run(queue, storage, std::move(reference), [&](void* stream) {
    execution::with_storage_type(storage, [&]<class S>() { launch_on_gpu<S>(op, launch, stream); });
  });
}

namespace detail {

/// The address of an operand. Its static type says again what the spec says, so they must agree.
template <class Element>
void bind(std::string_view op, const Spec& spec, const execution::View& view, Element*& pointer) {
  bool agree = std::is_const_v<Element> == (spec.access == execution::Access::read);
  if constexpr (!std::is_void_v<Element>)
    agree = agree && sizeof(Element) == execution::size_bytes(spec.dtype);
  if (!agree && !spec.workspace) throw_other_type(op, spec);
  pointer = view ? view.as<Element>() : nullptr;
}
template <class Element>
void bind(std::string_view op, const Spec& spec, const Columns& columns, Matrix<Element>& matrix) {
  Element* data = nullptr;
  bind(op, spec, columns.view, data);
  matrix = {data + columns.first, columns.rows(), columns.count, columns.width()};
}

template <class Element>
void bind(std::string_view op, const Spec& spec, const RowsOf<execution::View>& rows,
          Element*& pointer) {
  bind(op, spec, rows.view, pointer);
}

}  // namespace detail

/// The addresses of the operands of an operator whose storage type is S.
/// @throws Error if one is not of the type that Operands<T> says
template <class S, Operator Op>
OperandsOf<Op, Pointers<S>> addresses(const Op& op, const OperandsOf<Op, execution::View>& views) {
  OperandsOf<Op, Pointers<S>> all = {};
  op.each(
      [](const Spec& spec, const auto& view, auto& pointer) {
        using detail::bind;
        bind(Op::kName, spec, view, pointer);
      },
      views, all);
  return all;
}

/// Checks the operands of an operator and runs `op.reference<S>(pointers)` on the host,
/// `op.launch<S>(pointers, stream)` on a GPU. S is the type of `op.storage`.
/// @throws Error as launch_on_gpu, or if an operand is not what its spec says
template <Operator Op>
void run(execution::Queue& queue, const Op& op, const OperandsOf<Op, execution::View>& views) {
  check(op, views);
  execution::with_storage_type(op.storage, [&]<class S>() {
    const auto all = addresses<S>(op, views);
    run(
        queue, [op, all] { op.template reference<S>(all); },
        [&](void* stream) {
          const auto launch = [&]<class Device>(void* on) {
            return op.template launch<Device>(all, on);
          };
          launch_on_gpu<S>(Op::kName, launch, stream);
        });
  });
}

}  // namespace stowage::kernels

/// The run of an operator, behind the definition of its launch.
#define STOWAGE_OPERATOR_RUN(Op)                                                        \
  void Op::run(execution::Queue& queue, const Operands<execution::View>& views) const { \
    kernels::run(queue, *this, views);                                                  \
  }

/// The launches of an operator that another one calls, behind their definition.
#if STOWAGE_HAVE_CUDA
#define STOWAGE_LAUNCHES(Op)                                                       \
  template int Op::launch(const Operands<Pointers<float>>& o, void* stream) const; \
  template int Op::launch(const Operands<Pointers<execution::Bf16>>& o, void* stream) const;
#else
#define STOWAGE_LAUNCHES(Op)
#endif
