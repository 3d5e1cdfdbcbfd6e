import type { iconNames } from "./icon-names.ts";

export type IconName = keyof typeof iconNames;

/** A picture next to a word that says the same. A screen reader reads the word alone. */
export function Icon({ is }: { readonly is: IconName }) {
  return (
    <svg class="icon" aria-hidden="true">
      <use href={`#icon-${is}`} />
    </svg>
  );
}

interface IconButtonProps {
  readonly is: IconName;
  /** What it does, in words. */
  readonly label: string;
  readonly class?: string;
  readonly title?: string;
  readonly disabled?: boolean;
  readonly onClick: () => void;
}

/** A button that shows a picture alone. A screen reader reads its label. */
export function IconButton({ is, label, ...rest }: IconButtonProps) {
  return (
    <button type="button" class="ghost" {...rest}>
      <Icon is={is} />
      <span class="unseen">{label}</span>
    </button>
  );
}
