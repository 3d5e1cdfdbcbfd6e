/** A port, for instance a store or a clock, some of whose members a test replaces. The port itself stays as it is. */
export function withMembers<Port extends object>(port: Port, members: Partial<Port>): Port {
  return new Proxy(port, {
    get(target, name) {
      if (Object.hasOwn(members, name)) return Reflect.get(members, name) as unknown;
      const member: unknown = Reflect.get(target, name, target);
      return typeof member === "function" ? member.bind(target) : member;
    },
  });
}
