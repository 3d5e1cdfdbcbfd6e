/** Names that the language, Node, a library or a user may give a method of their own, today or tomorrow. */
const NAMES: readonly PropertyKey[] = [
  ...["drop", "take", "map", "filter", "flatMap", "reduce", "toArray", "forEach", "some", "every"],
  ...["then", "catch", "finally", "return", "throw", "close", "end", "destroy", "dispose", "abort", "cancel", "leave"],
  ...[
    "connect",
    "watch",
    "listen",
    "release",
    "ref",
    "unref",
    "hasRef",
    "on",
    "off",
    "listenerCount",
    "isOpen",
    "body",
  ],
  ...["baseUrl", "originalUrl"],
  // Node 20 has these two symbols as well.
  ...["dispose", "asyncDispose"].map((name) => Reflect.get(Symbol, name) as symbol),
];

/** Objects whose prototypes have methods that the runtime has no business with. Each refuses to be called. */
export class ForeignMethods {
  /** What was called, by what object. */
  readonly called: string[] = [];

  /**
   * Gives the prototype of an object such methods, except those that the object has and those that its interface names
   * as optional ones.
   */
  add<T extends object>(what: string, object: T, optional: readonly string[] = []): T {
    const methods: object = Object.create(Object.getPrototypeOf(object) as object | null);
    for (const name of NAMES)
      if (!(name in object) && !optional.includes(String(name)))
        Object.defineProperty(methods, name, { configurable: true, writable: true, value: this.#method(what, name) });
    return Object.setPrototypeOf(object, methods) as T;
  }

  #method(what: string, name: PropertyKey): () => never {
    return () => {
      this.called.push(`${String(name)} of ${what}`);
      throw new RangeError(`${String(name)} of ${what} was called`);
    };
  }
}

/** What the protocol of iterators names as optional. */
export const ofIterators = ["return", "throw"];
/** What the language asks of every value that is awaited or yielded. */
export const ofValues = ["then"];
