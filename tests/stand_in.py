"""The device of the tests: the GPU that TEST_DEVICE names or, without one, a stand-in accelerator called "gpu".

The stand-in computes on the CPU and behaves as CUDA does. It refuses what CUDA refuses (tensors of two devices, a
generator of the CPU, ``.numpy()``), has random numbers of its own, and counts what makes the host wait, by operation
and line. Its rules, and where they are from: a CPU tensor may join only as a scalar of no dimensions, in pointwise
operations (``TensorIterator``), or as an index (``aten::index`` copies it, and waits); a copy waits unless
``non_blocking`` (``memcpy_and_sync`` in Copy.cu); ``nonzero``, boolean indices, ``item`` and what is built on them
wait; so does ``multinomial``, twice, to check its input (Distributions.cpp). It imitates no kernels, streams,
page-locked memory, memory limits, asserts on the device, FSDP or NCCL: attention runs PyTorch's plain formula, and
autocast casts the operations of CAST only.
"""

import collections
import functools
import os
import traceback
import warnings
from contextlib import contextmanager

import torch
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

NAME = os.environ.get("TEST_DEVICE", "gpu")
A, WAITS = torch.ops.aten, collections.Counter()
READS = {A._local_scalar_dense, A.nonzero, A.equal, A.masked_select, A._unique2, A.unique_dim, A.unique_consecutive}
READS |= {A.bincount, A.multinomial, A.linalg_cholesky, A.repeat_interleave, A._assert_async}
TAKE_CPU = {A._to_copy, A.copy_, A._pack_padded_sequence, A._pack_padded_sequence_backward}  # take tensors of the CPU
INDEX = {A.index, A.index_put, A.index_put_, A._index_put_impl_, A._unsafe_index}
FILL = {A.masked_fill, A.masked_fill_, A.fill_}
CAST = {F.linear, torch.matmul, torch.bmm, torch.mm, torch.baddbmm, torch.einsum, torch.conv1d}
CAST |= {F.scaled_dot_product_attention, torch.Tensor.matmul, torch.Tensor.__matmul__}
OWN = []  # generators on the stand-in
RANDOM = [torch.Generator().manual_seed(0).get_state()]
COUNT = [0]  # of devices: none outside of ``device()``


class Gpu(torch.Tensor):
    """A tensor of the stand-in, around one of the CPU, ``raw``."""

    @staticmethod
    def __new__(cls, raw):
        options = {"strides": raw.stride(), "storage_offset": raw.storage_offset(), "dtype": raw.dtype}
        self = torch.Tensor._make_wrapper_subclass(cls, raw.size(), device="gpu:0", **options)
        self.raw = raw
        return self

    def __repr__(self):
        return f"Gpu({self.raw})"

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.data_ptr:
            return args[0].raw.data_ptr()
        if func is torch.Tensor.tolist:
            wait(func)
            return args[0].raw.tolist()
        if func in (torch.Tensor.numpy, torch.Tensor.__array__):
            raise TypeError("can't convert gpu:0 device type tensor to numpy. Use Tensor.cpu() first")
        if func in CAST and torch.is_autocast_enabled("gpu"):
            half = torch.get_autocast_dtype("gpu")
            cast = lambda x: x.to(half) if isinstance(x, Gpu) and x.is_floating_point() else x  # noqa: E731
            args, kwargs = pytree.tree_map(cast, (args, kwargs))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {})


class Mode(TorchDispatchMode):
    """What makes factories, such as ``zeros(device="gpu")``, and copies from the CPU come here."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {})


@functools.cache
def register():
    """Make "gpu" a device of PyTorch, for the rest of this process; the libraries that keep it so."""
    from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

    class Module(_DummyBackendModule):
        """``torch.gpu``: what autocast and the random numbers of a device need."""

        is_available = staticmethod(lambda: COUNT[0] > 0)
        device_count = staticmethod(lambda: COUNT[0])
        get_amp_supported_dtype = staticmethod(lambda: [torch.bfloat16, torch.float16])
        synchronize = staticmethod(lambda device=None: None)
        get_rng_state = staticmethod(lambda device=None: RANDOM[0].clone())

        def set_rng_state(self, state, device=None):
            RANDOM[0] = state.clone()

        def manual_seed_all(self, seed):
            RANDOM[0] = torch.Generator().manual_seed(seed + 1).get_state()  # other numbers than the CPU's

    _setup_privateuseone_for_python_backend("gpu", Module())
    autocast, kernels = torch.library.Library("_", "IMPL", "AutocastPrivateUse1"), torch.library.Library("aten", "IMPL")
    autocast.fallback(torch.library.fallthrough_kernel)  # of what is not in CAST
    made = {  # by torch.tensor(..., device="gpu"), which no mode sees
        "empty_strided": lambda size, stride, dtype=None, **_: Gpu(torch.empty_strided(size, stride, dtype=dtype)),
        "empty.memory_format": lambda size, dtype=None, **_: Gpu(torch.empty(size, dtype=dtype)),
        "_copy_from": lambda source, target, *rest: compute(A.copy_.default, (target, source, *rest), {}),
    }
    for name, kernel in made.items():
        kernels.impl(name, kernel, "PrivateUse1")
    return autocast, kernels


def wait(func, times=1):
    """Count that the host waits, and where: in a line of the library, or else of a test or notebook."""
    stack = [f for f in traceback.extract_stack() if "/torch/" not in f.filename and f.filename != __file__]
    ours = [f for f in stack if "transformer_lib/" in f.filename] or stack
    name = str(getattr(func, "__name__", func)).split(".")[0].strip("_")
    WAITS[name, f"{ours[-1].filename.split('transformer_lib/')[-1]}:{ours[-1].lineno}"] += times


def lstm_cell(a, b, cx, *bias):
    """``_thnn_fused_lstm_cell``, which PyTorch has for accelerators only."""
    i, f, g, o = (a + b + sum(x for x in bias if x is not None)).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


def lstm_cell_backward(dh, dc, cx, cy, gates, has_bias):
    """The gradients of its gates, its old state and its bias."""
    (i, f, g, o), t = gates.chunk(4, 1), cy.tanh()
    dh = torch.zeros_like(cx) if dh is None else dh
    dc = dh * o * (1 - t * t) + (0 if dc is None else dc)
    d = torch.cat([dc * g * i * (1 - i), dc * cx * f * (1 - f), dc * i * (1 - g * g), dh * t * o * (1 - o)], 1)
    return d, dc * f, d.sum(0) if has_bias else d.new_empty(0)


ONLY_HERE = {A._thnn_fused_lstm_cell: lstm_cell, A._thnn_fused_lstm_cell_backward_impl: lstm_cell_backward}


def compute(func, args, kwargs):
    """Do what CUDA would do, refuse what it would refuse, and count what it would wait for."""
    leaves = pytree.tree_leaves((args, kwargs))
    tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
    ours, cpu = [x for x in tensors if isinstance(x, Gpu)], [x for x in tensors if x.device.type == "cpu"]
    packet, target = func._overloadpacket, kwargs.get("device")
    to_gpu = target is not None and torch.device(target).type == "gpu"
    here = isinstance(args[0], Gpu) if packet is A.copy_ else bool(ours) if target is None else to_gpu
    if packet in (A._to_copy, A.copy_):
        patient = kwargs.get("non_blocking") or (packet is A.copy_ and args[2:] and args[2])
        if here != isinstance(args[packet is A.copy_], Gpu) and not patient:
            wait(func)
    elif ours and cpu and packet not in TAKE_CPU:
        indices = [i for i in args[1] if i is not None] if packet in INDEX and isinstance(args[0], Gpu) else []
        others = [x for x in cpu if not any(x is i for i in indices)]
        scalars = torch.Tag.pointwise in func.tags or packet in INDEX or packet in FILL
        into = func._schema.is_mutable and isinstance(args[0], torch.Tensor) and not isinstance(args[0], Gpu)
        if into or any(x.dim() or not scalars for x in others):
            raise RuntimeError(f"{func}: expected all tensors to be on the same device, found gpu:0 and cpu")
        if any(not isinstance(i, Gpu) for i in indices):
            wait(func)
    if ours and packet in INDEX and any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]):
        filled = packet in (A.index_put_, A.index_put) and len(args[1]) == 1 and args[2].numel() == 1  # as masked_fill
        wait(func, 0 if filled else 1)
    if ours and packet in READS:
        wait(func, 2 if packet is A.multinomial else 1)
    draws = next((x for x in leaves if isinstance(x, torch.Generator)), None)
    if draws is not None and here != any(draws._cdata == own._cdata for own in OWN):
        raise RuntimeError(f"Expected a '{'gpu' if here else 'cpu'}' device type for generator")
    raw_args, raw_kwargs = pytree.tree_map(lambda x: x.raw if isinstance(x, Gpu) else x, (args, kwargs))
    raw_kwargs |= {"device": torch.device("cpu")} if to_gpu else {}
    raw_kwargs |= {"pin_memory": False} if "pin_memory" in raw_kwargs else {}
    drawn = here and draws is None and torch.Tag.nondeterministic_seeded in func.tags
    before = torch.get_rng_state()
    if drawn:
        torch.default_generator.set_state(RANDOM[0])
    try:
        out = ONLY_HERE.get(packet, func)(*raw_args, **raw_kwargs)
    finally:
        if drawn:
            RANDOM[0] = torch.get_rng_state()
            torch.default_generator.set_state(before)
    if not here:
        return out
    if packet is A._pack_padded_sequence:
        return Gpu(out[0]), out[1]  # the sizes of the steps stay on the CPU
    known = {id(x.raw): x for x in ours}  # an operation in place gives the same tensor back
    return pytree.tree_map_only(torch.Tensor, lambda x: known.get(id(x)) if id(x) in known else Gpu(x), out)


@contextmanager
def device(count=1):
    """A block in which the device is there; what it yields counts the waits in it. On CUDA, PyTorch's warnings do."""
    WAITS.clear()
    if NAME == "gpu":
        register()
        swap = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(True)  # Module.to keeps parameters, as on CUDA
        COUNT[0] = count
        plainly = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
        try:
            with (
                Mode(),
                plainly,
                torch.autograd.set_multithreading_enabled(False),
            ):  # backward passes stay in this thread
                yield WAITS
        finally:
            COUNT[0] = 0
            torch.__future__.set_swap_module_params_on_conversion(swap)
        return
    torch.set_float32_matmul_precision("highest")  # which a training changes
    shown, mode = warnings.showwarning, torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("always", "called a synchronizing")
        waits = lambda message, *_: "synchronizing" in str(message)  # noqa: E731
        warnings.showwarning = lambda *seen: wait("synchronize") if waits(*seen) else shown(*seen)
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield WAITS
        finally:
            torch.cuda.set_sync_debug_mode(mode)


def generator(seed):
    """A generator on the device."""
    if NAME != "gpu":
        return torch.Generator(NAME).manual_seed(seed)
    OWN.append(torch.Generator().manual_seed(seed))
    return OWN[-1]


def plain(tensor):
    """The same numbers on the CPU, without a wait that counts."""
    return tensor.raw if isinstance(tensor, Gpu) else tensor.detach().cpu()
