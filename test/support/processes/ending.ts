import type { ChildProcess } from 'node:child_process';

/** Kills `child` when this process exits before it, also after an uncaught error, so that it does not run on. */
export function endWithThisProcess(child: ChildProcess): void {
  const kill = () => void child.kill('SIGKILL');
  process.once('exit', kill);
  child.once('exit', () => process.off('exit', kill));
}
