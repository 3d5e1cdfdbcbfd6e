import type { IconNode } from "lucide";
import {
  Ban,
  CalendarClock,
  ChartColumn,
  ChartGantt,
  ChevronLeft,
  ChevronRight,
  CircleCheck,
  CircleDashed,
  CircleQuestionMark,
  CircleSlash,
  CircleX,
  Copy,
  GitFork,
  Hourglass,
  Inbox,
  Info,
  Keyboard,
  List,
  Lock,
  Mail,
  Moon,
  Network,
  Pause,
  Play,
  Plus,
  RotateCcw,
  Send,
  Sparkles,
  SquareFunction,
  Trash2,
  TriangleAlert,
  Unplug,
  Workflow,
  Wrench,
  X,
  ZoomIn,
  ZoomOut,
} from "lucide";
import { h } from "preact";

const icons = {
  answer: Inbox,
  blocked: Lock,
  cancel: Ban,
  cancelling: CircleSlash,
  close: X,
  copy: Copy,
  created: CircleDashed,
  delete: Trash2,
  done: CircleCheck,
  failed: CircleX,
  figures: ChartColumn,
  fold: ChevronRight,
  fork: GitFork,
  former: ChevronLeft,
  generation: RotateCcw,
  info: Info,
  keys: Keyboard,
  list: List,
  lost: Unplug,
  message: Mail,
  model: Sparkles,
  new: Plus,
  pause: Pause,
  question: CircleQuestionMark,
  queue: Hourglass,
  runs: Workflow,
  schedule: CalendarClock,
  send: Send,
  sleep: Moon,
  step: SquareFunction,
  tool: Wrench,
  tree: Network,
  warning: TriangleAlert,
  waterfall: ChartGantt,
  work: Play,
  zoomIn: ZoomIn,
  zoomOut: ZoomOut,
} satisfies Record<string, IconNode>;

export type IconName = keyof typeof icons;

/** A picture next to a word that says the same. A screen reader reads the word alone. */
export function Icon({ is }: { readonly is: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      {(icons[is] as IconNode).map(([tag, attributes], index) => h(tag, { ...attributes, key: String(index) }))}
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
