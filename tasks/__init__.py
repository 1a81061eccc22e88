"""Small terminal tasks with exact verifiers, written as Harbor task folders."""
