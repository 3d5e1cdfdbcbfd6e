import { useEffect, useState } from "react";

/**
 * What the server of a page answers at a path, whether it is away, and how often it was. It is asked again 0.3 s after its
 * answer: a browser has few connections to a server, which the chat needs too.
 */
export function useServer(path, first) {
  const [answer, setAnswer] = useState(first);
  const [isAway, setIsAway] = useState(false);
  const [timesAway, setTimesAway] = useState(0);
  useEffect(() => {
    let timer;
    let isOver = false;
    const read = async () => {
      try {
        setAnswer(await (await fetch(path)).json());
        setIsAway(false);
      } catch {
        setIsAway(true);
      }
      if (!isOver) timer = setTimeout(read, 300);
    };
    if (isAway) setTimesAway((times) => times + 1);
    void read();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [path, isAway]);
  return { answer, isAway, timesAway };
}

/** Says whether the server of a page is there, and what may be tried in either case. */
export function ServerCard({ isAway, up, away, children }) {
  return (
    <div className="card">
      <h2 data-server={isAway ? "away" : "up"}>{isAway ? "The server is away" : "The server is up"}</h2>
      <p className="soft">{isAway ? away : up}</p>
      {children}
    </div>
  );
}
