import { run } from '../../src/cli/commands.ts';

export interface Heard {
  code: number;
  stdout: string;
  stderr: string;
}

/** Runs a command in this process. */
export async function entrepot(environment: Record<string, string>, ...words: string[]): Promise<Heard> {
  const heard = { stdout: '', stderr: '' };
  const code = await run(words, environment, {
    stdout: { write: (text: string) => (heard.stdout += text) },
    stderr: { write: (text: string) => (heard.stderr += text) },
    once: () => {},
    on: () => {},
    exit: () => {},
  });
  return { code, ...heard };
}
