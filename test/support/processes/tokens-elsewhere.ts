import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import type { Tokens } from '../../../src/accounts/tokens.ts';

export interface Asked {
  id: number;
  now: number;
  method: string;
  values: unknown[];
}

export interface Told {
  value?: unknown;
  error?: string;
}

/** The tokens of a database in a process of their own, which shares no memory with the test; it ends with the test. */
export async function tokensElsewhere(
  t: Pick<ExecutionContext, 'teardown'>,
  url: string,
  now: () => number,
): Promise<Pick<Tokens, 'verify' | 'revoke' | 'list' | 'bootstrap'>> {
  const child = fork(join(import.meta.dirname, 'hold-tokens.ts'), [url], { serialization: 'advanced', execArgv: [] });
  const exited = once(child, 'exit');
  t.teardown(async () => {
    child.kill('SIGKILL');
    await exited;
  });
  const waiting = new Map<number, (told: Told) => void>();
  const ready = Promise.withResolvers<Told>();
  waiting.set(0, ready.resolve);
  child.on('message', ({ id, ...told }: Told & { id: number }) => waiting.get(id)?.(told));
  child.once('exit', () => {
    for (const each of waiting.values()) each({ error: 'the other process has ended' });
  });
  let last = 0;
  const call = async (method: string, ...values: unknown[]): Promise<any> => {
    const { promise, resolve } = Promise.withResolvers<Told>();
    last += 1;
    waiting.set(last, resolve);
    child.send({ id: last, now: now(), method, values } satisfies Asked);
    const { value, error } = await promise;
    if (error !== undefined) throw new Error(error);
    return value;
  };
  const { error } = await ready.promise;
  if (error !== undefined) throw new Error(error);
  return {
    verify: (value) => call('verify', value),
    revoke: (account, id) => call('revoke', account, id),
    list: (account, limit) => call('list', account, limit),
    bootstrap: (account, value) => call('bootstrap', account, value),
  };
}
