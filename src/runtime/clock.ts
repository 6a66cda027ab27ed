/** How much faster than real time the clock for deletions goes while it follows a clock that was set forward. */
const catchUp = 0.1;

/**
 * The time for decisions to delete something because of its age; milliseconds since 1970 UTC. It is never ahead of `now`,
 * the system's clock. When that is set forward, for example by a day, this one follows by a tenth of the time that really
 * passes, as `watch` shows, a monotonic clock in milliseconds. So no wrong clock makes new content look old. A clock that
 * was set forward before the start of the process is not noticed.
 */
export function deletionClock(now: () => number, watch: () => number): () => number {
  let time = now();
  let at = watch();
  return () => {
    const wall = now();
    const elapsed = watch() - at;
    at += elapsed;
    time += elapsed + Math.min(Math.max(0, wall - time - elapsed), elapsed * catchUp);
    return Math.floor(Math.min(wall, time));
  };
}
