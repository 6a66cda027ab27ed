import { spawn, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { folderUntilEnd } from '../folder.ts';
import { endWithThisProcess } from './ending.ts';

const main = join(import.meta.dirname, '../../../bin/entrepot.js');
/** As in the first line of this file. */
const flags = ['--max-semi-space-size=8', '--initial-old-space-size=64'];

export interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

export interface Serving {
  url: string;
  child: ChildProcess;
  /** The output so far. */
  said: () => string;
  /** Milliseconds from the start until it was ready. */
  startedIn: number;
  /** Stops the process; resolves when it has exited. */
  stop(signal?: NodeJS.Signals): Promise<Ended>;
}

/** Runs commands in separate processes, on one data folder, with only the given settings. */
export class CommandLine {
  readonly data: string;
  readonly #t: Pick<ExecutionContext, 'teardown'>;
  readonly #settings: Record<string, string>;

  private constructor(t: Pick<ExecutionContext, 'teardown'>, data: string, settings: Record<string, string>) {
    this.#t = t;
    this.data = data;
    this.#settings = settings;
  }

  /** The data folder is in `parent`. */
  static async create(
    t: Pick<ExecutionContext, 'teardown'>,
    settings: Record<string, string> = {},
    parent?: string,
  ): Promise<CommandLine> {
    const folder = await folderUntilEnd(t, parent);
    return new CommandLine(t, join(folder, 'data'), settings);
  }

  async run(...words: string[]): Promise<Ended> {
    return ended(this.#start(words, {}));
  }

  /** Starts a command that the test ends. */
  begin(...words: string[]): { child: ChildProcess; end: Promise<Ended> } {
    const child = this.#start(words, {});
    endWithThisProcess(child);
    return { child, end: ended(child) };
  }

  /** Starts `serve` of `program` on a free port; resolves when it is ready, rejects if it exits before. */
  async serve(settings: Record<string, string> = {}, program = main): Promise<Serving> {
    const startedAt = performance.now();
    const child = this.#start(['serve'], { ENTREPOT_PORT: '0', ...settings }, program);
    let output = '';
    child.stdout!.on('data', (chunk: Buffer) => (output += chunk.toString()));
    const end = ended(child);
    endWithThisProcess(child);
    this.#t.teardown(async () => {
      child.kill('SIGKILL');
      await end;
    });
    const url = await new Promise<string>((resolve, reject) => {
      const look = () => {
        const ready = /"url":"([^"]+)","msg":"ready"/.exec(output);
        if (!ready) return;
        child.stdout!.off('data', look);
        resolve(ready[1]!);
      };
      child.stdout!.on('data', look);
      end.then(({ code, stderr }) => reject(new Error(`ended with ${code}: ${stderr}`)), reject);
    });
    return {
      url,
      child,
      said: () => output,
      startedIn: performance.now() - startedAt,
      stop: (signal = 'SIGTERM') => {
        child.kill(signal);
        return end;
      },
    };
  }

  #start(words: string[], settings: Record<string, string>, program = main): ChildProcess {
    const kept = Object.entries(process.env).filter(([name]) => !/^(ENTREPOT_|NODE_COMPILE_CACHE$)/.test(name));
    const env = { ...Object.fromEntries(kept), ENTREPOT_DATA: this.data, ...this.#settings, ...settings };
    return spawn(process.execPath, [...flags, program, ...words], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  }
}

function ended(child: ChildProcess): Promise<Ended> {
  let [stdout, stderr] = ['', ''];
  child.stdout!.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
  child.stderr!.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, stdout, stderr }));
  });
}
