"""Models as native libraries: a shared object and a C header, without Python."""
