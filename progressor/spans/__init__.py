"""Spans: those that OpenTelemetry shows of requests and steps, in apps that have set it up."""
