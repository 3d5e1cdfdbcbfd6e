import { start } from "../server.ts";
import { HistoryView } from "./history.tsx";
import { NowView } from "./now.tsx";

/** How runs went over time, and what they, their queues and their workers are at now. */
export function FiguresView() {
  return (
    <>
      <h1>Figures</h1>
      <HistoryView />
      {start.value?.tenant === null && <NowView />}
    </>
  );
}
