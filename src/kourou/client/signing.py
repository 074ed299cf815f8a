"""Signing what a client sends, for clusters that ask who it is (`aclEnable`)."""

from __future__ import annotations

from kourou.access.credentials import Credentials

__all__ = ["Credentials"]
