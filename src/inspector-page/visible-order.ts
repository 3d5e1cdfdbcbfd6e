import type { ComponentChildren, VNode } from "preact";
import { options } from "preact";

/**
 * Shows characters that change the order of others by their numbers, in all texts of the page: a question could read
 * otherwise than it is.
 */
export function showOrder(): void {
  const { vnode: before } = options;
  options.vnode = (vnode) => {
    if (typeof vnode.type === "string") showOrderIn(vnode as VNode<Children>);
    before?.(vnode);
  };
}

interface Children {
  children?: ComponentChildren;
}

function showOrderIn({ props }: VNode<Children>): void {
  const { children } = props;
  if (children === undefined) return;
  props.children = Array.isArray(children) ? children.map(shown) : shown(children);
}

function shown(child: ComponentChildren): ComponentChildren {
  if (typeof child !== "string") return child;
  return child.replace(
    /\p{Bidi_Control}/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
