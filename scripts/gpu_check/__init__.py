# SPDX-License-Identifier: MIT
"""The parts of scripts/gpu-check."""
