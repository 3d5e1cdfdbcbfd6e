import { isLost } from "../log/refusals.ts";

const MAX_MOVES = 5;

/** Tries an action on a run again if another process claims the run meanwhile. */
export async function unlessLost<T>(act: () => Promise<T>): Promise<T> {
  for (let move = 1; ; move++) {
    try {
      return await act();
    } catch (error) {
      if (!isLost(error) || move === MAX_MOVES) throw error;
    }
  }
}
