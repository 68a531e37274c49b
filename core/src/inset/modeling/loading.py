"""Builds transformers modules without random weights, and fills them from safetensors files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import torch
from torch.overrides import TorchFunctionMode

from inset.checkpoint import Checkpoint
from inset.errors import ConfigError, PluginContractError
from inset.modeling.interfaces import LoadOptions, ModelAdapter
from inset.modeling.rotary import check_rotary_frequencies
from inset.modeling.transformers_adapter import TransformersAdapter
from inset.registry import load_object

__all__ = ["build_module", "load_adapter", "load_weights", "resolve_device", "resolve_dtype"]

M = TypeVar("M", bound=torch.nn.Module)

_DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# Buffers that old checkpoints carry and modules compute by themselves.
_COMPUTED: Final = (".position_ids", ".inv_freq", ".masked_bias")


def resolve_device(name: str) -> torch.device:
    """Returns the device that an option names; ``auto`` is the first CUDA device, or the CPU where there is none.

    Raises:
        ConfigError: The name is unknown, or the device is not there.
    """
    if name == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    kind, _, index = name.partition(":")
    if kind not in {"cpu", "cuda"} or (index and not index.isdecimal()) or (kind == "cpu" and index):
        raise ConfigError(f"device must be auto, cpu, cuda or cuda:N, not {name!r}.")
    if kind == "cpu":
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if int(index or 0) >= count:
        raise ConfigError(f"There is no device {name!r} here: torch sees {count} CUDA device(s). Choose --device cpu.")
    return torch.device("cuda", int(index or 0))


def resolve_dtype(name: str, device: torch.device, checkpoint: Checkpoint) -> torch.dtype:
    """Returns the dtype that an option names; ``auto`` is float32 on a CPU, and the checkpoint's own on a GPU.

    Raises:
        ConfigError: The name is unknown, or the checkpoint's dtype is not one that is served.
    """
    if name != "auto":
        if name not in _DTYPES:
            raise ConfigError(f"dtype must be auto, float32, bfloat16 or float16, not {name!r}.")
        return _DTYPES[name]
    if device.type == "cpu":
        return torch.float32
    configs = (checkpoint.config, checkpoint.config.get("text_config") or {})
    stated = next((c[key] for c in configs for key in ("dtype", "torch_dtype") if c.get(key)), "bfloat16")
    if stated not in _DTYPES:
        raise ConfigError(f"The checkpoint's dtype is {stated!r}; choose --dtype float32, bfloat16 or float16.")
    return _DTYPES[stated]


def load_adapter(target: str, checkpoint: Checkpoint, options: LoadOptions) -> ModelAdapter:
    """Imports a registered adapter and loads the checkpoint with it.

    Args:
        target: Import string from the model registry.
        checkpoint: The checkpoint.
        options: Device, dtype and attention.

    Raises:
        PluginContractError: The target is no `ModelAdapter` class.
        ConfigError: The checkpoint cannot be served.
    """
    adapter_class = load_object(target)
    if not (isinstance(adapter_class, type) and issubclass(adapter_class, ModelAdapter)):
        raise PluginContractError(f"{target!r} is registered as a model adapter, but is no subclass of inset.api.ModelAdapter.")
    with torch.inference_mode():
        adapter = adapter_class.load(checkpoint, options)
    if isinstance(adapter, TransformersAdapter):  # its module need not come from `build_module`, which refuses before weights are read
        check_rotary_frequencies(adapter.module.config.get_text_config(), options.max_model_len)
    return adapter


class _ParametersOnMeta(TorchFunctionMode):
    """Gives modules parameters without memory: they allocate with `torch.empty`, and buffers with other functions."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        if func is torch.empty:
            options["device"] = "meta"
        return func(*args, **options)


def build_module(model_class: type[M], config: Any, options: LoadOptions) -> M:
    """Builds a transformers model whose weights are still to come: no memory, no random numbers.

    The text model, configured under ``text_config``, gets the paged attention; every other part keeps the module's default.

    Args:
        model_class: A transformers model class with a ``_from_config``.
        config: Its config.
        options: Dtype, attention and longest request.

    Raises:
        ConfigError: The config cannot be built, or its rotary embeddings would change while it serves.
    """
    check_rotary_frequencies(config.get_text_config(), options.max_model_len)
    factory: Callable[..., M] = model_class._from_config  # type: ignore[attr-defined] # noqa: SLF001 - the only door that takes attention and dtype
    try:
        with _ParametersOnMeta():
            module = factory(config, dtype=options.dtype, attn_implementation={"text_config": options.attn_implementation})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"{model_class.__name__} cannot be built from the checkpoint's config: {error}") from error
    return module.eval().requires_grad_(False)


def load_weights(
    module: torch.nn.Module,
    checkpoint: Checkpoint,
    options: LoadOptions,
    *,
    candidates: Callable[[str], Sequence[str]],
) -> None:
    """Fills a module with the tensors of a checkpoint; tensors are taken over, not copied, where dtype and device allow it.

    Args:
        module: What `build_module` gave.
        checkpoint: The checkpoint.
        options: Device and dtype.
        candidates: Name in a file -> names that it can have in the module, most likely first; the first that exists is taken.

    Raises:
        ConfigError: Tensors are missing, unexpected or of other shapes; up to five are named.
    """
    expected = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    found: dict[str, torch.Tensor] = {}
    unexpected: list[str] = []
    for name, tensor in _read_tensors(checkpoint, options.device):
        target = next((candidate for candidate in candidates(name) if candidate in expected), None)
        if target is not None:
            found[target] = tensor.to(options.dtype) if tensor.is_floating_point() else tensor
        elif not name.endswith(_COMPUTED):
            unexpected.append(name)
    shapes = [f"{n} {tuple(t.shape)} instead of {tuple(expected[n].shape)}" for n, t in found.items() if t.shape != expected[n].shape]
    _refuse(checkpoint, "tensors that the model does not have", unexpected)
    _refuse(checkpoint, "tensors of other shapes than its config says", shapes)
    module.load_state_dict(found, strict=False, assign=True)
    getattr(module, "tie_weights", lambda: None)()
    loaded = {id(p) for n, p in module.named_parameters(remove_duplicate=False) if n in found}
    missing = [n for n, p in module.named_parameters() if id(p) not in loaded]
    _refuse(checkpoint, "no tensors for", missing)
    module.to(options.device)


def _read_tensors(checkpoint: Checkpoint, device: torch.device) -> Any:
    from safetensors import SafetensorError, safe_open

    for path in checkpoint.weight_files:
        try:
            with safe_open(path, framework="pt", device=str(device)) as file:
                for name in file.keys():  # noqa: SIM118 - the file is no mapping
                    yield name, file.get_tensor(name)
        except SafetensorError as error:
            raise ConfigError(f"{path.name} of the checkpoint {checkpoint.folder.name!r} cannot be read: {error}") from error


def _refuse(checkpoint: Checkpoint, what: str, names: Sequence[str]) -> None:
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        raise ConfigError(f"The checkpoint {checkpoint.folder.name!r} has {what}: {', '.join(names[:5])}{more}.")
