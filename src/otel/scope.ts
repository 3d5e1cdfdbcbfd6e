/** The instrumentation scope: the name and the version of the package. A test compares the version. */
export const SCOPE = "cadenza";
export const SCOPE_VERSION = "0.1.0";
