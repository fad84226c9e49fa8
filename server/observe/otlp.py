"""Export over OTLP, only when OpenTelemetry's standard environment variables request this export."""

import importlib
from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor


class ExporterMissingError(RuntimeError):
    """The error that the environment asks for an exporter that is not installed."""


def wanted(signal: str, environment: Mapping[str, str]) -> bool:
    """Return whether the variables ask for this signal, `traces` or `metrics`."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environment.get(f"OTEL_{signal.upper()}_EXPORTER", "")
    if exporter:
        return "otlp" in exporter.split(",")
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    return any(environment.get(name) for name in endpoints)


def span_processor(environment: Mapping[str, str]) -> SpanProcessor | None:
    """Return the exporter of spans that the environment asks for, or None if it asks for none.

    Raise ExporterMissingError if this exporter is not installed.
    """
    if not wanted("traces", environment):
        return None
    return BatchSpanProcessor(_load("trace_exporter", "OTLPSpanExporter"))


def metric_reader(environment: Mapping[str, str]) -> MetricReader | None:
    """Return the exporter of metrics that the environment asks for, or None if it asks for none.

    Raise ExporterMissingError if the exporter is not installed.
    """
    if not wanted("metrics", environment):
        return None
    return PeriodicExportingMetricReader(_load("metric_exporter", "OTLPMetricExporter"))


def _load(module: str, name: str) -> Any:  # noqa: ANN401 - a class of an optional package
    """Return an exporter that configures itself from the environment."""
    path = f"opentelemetry.exporter.otlp.proto.grpc.{module}"
    try:
        return getattr(importlib.import_module(path), name)()
    except ImportError as error:
        message = (
            "the environment asks for OTLP export, but the exporter is not installed: "
            "install evenhand[otlp], or unset OTEL_EXPORTER_OTLP_ENDPOINT"
        )
        raise ExporterMissingError(message) from error
