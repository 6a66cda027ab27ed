import { spawn, type ChildProcess, type StdioOptions } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { openFifo } from '../support/processes/fifo.ts';
import { answers, freePort, redisUrl } from '../support/processes/services.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { until, within } from '../support/until.ts';

// The log of real processes whose standard output takes no lines: requests are answered all the same.

const main = join(import.meta.dirname, '../../bin/entrepot.js');

interface Started {
  url: string;
  child: ChildProcess;
  ended: Promise<number | null>;
}

async function serve(
  t: ExecutionContext,
  stdio: StdioOptions,
  settings: Record<string, string> = {},
): Promise<Started> {
  const port = await freePort();
  const env = {
    PATH: process.env.PATH,
    ENTREPOT_DATA: join(await folderUntilEnd(t), 'data'),
    ENTREPOT_PORT: `${port}`,
    ENTREPOT_UPSTREAMS: '[]',
    ...settings,
  };
  const child = spawn(process.execPath, [main, 'serve'], { env, stdio });
  const ended = new Promise<number | null>((resolve) => child.once('exit', resolve));
  t.teardown(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  const url = `http://127.0.0.1:${port}`;
  await until(() => answers(`${url}/readyz`), 60_000);
  return { url, child, ended };
}

async function dropped(url: string): Promise<number> {
  const metrics = await within(fetch(`${url}/metrics`).then((answer) => answer.text()));
  return Number(/^entrepot_log_lines_dropped_total (\d+)$/m.exec(metrics)![1]);
}

/** Sends requests with long log lines. */
async function fill(url: string, bytes: number): Promise<void> {
  const path = `/v3/${'x'.repeat(8000)}`;
  for (let sent = 0; sent < bytes; sent += 20 * 8000) {
    const answered = Array.from({ length: 20 }, () => fetch(url + path).then((answer) => answer.arrayBuffer()));
    await within(Promise.all(answered), 30_000);
  }
}

test.serial(
  'a reader that stalls: requests are answered, lines are dropped and counted, and writing resumes',
  async (t) => {
    const pipe = openFifo(await folderUntilEnd(t));
    const { url, child, ended } = await serve(t, ['ignore', pipe.writeEnd, pipe.writeEnd]);
    pipe.closeWriteEnd();
    await fill(url, 6 * 2 ** 20);
    const lost = await dropped(url);
    t.true(lost > 0);
    let text = '';
    await until(() => {
      text += pipe.read();
      return /lines of the log were dropped/.test(text);
    });
    const reported = Number(/"lines":(\d+),"msg":"\d+ lines of the log were dropped"/.exec(text)![1]);
    // The line of the last request can be dropped after its answer was read.
    t.true(reported >= lost && reported <= lost + 20, `${reported} lines reported, ${lost} counted`);
    const lines = text.split('\n').filter((each) => each.startsWith('{'));
    t.notThrows(() => lines.slice(0, -1).forEach((each) => JSON.parse(each)), 'no line is cut');
    await fetch(`${url}/v3/after`);
    await until(() => {
      text += pipe.read();
      return text.includes('/v3/after');
    });
    t.is(await dropped(url), reported);
    child.kill('SIGTERM');
    t.is(await within(ended, 20_000), 0);
    t.regex(pipe.read(), /"msg":"closing"/);
    pipe.closeReader();
  },
);

test.serial('a pipe that is still full at the end does not keep the process', async (t) => {
  const pipe = openFifo(await folderUntilEnd(t));
  const { url, child, ended } = await serve(t, ['ignore', pipe.writeEnd, pipe.writeEnd]);
  pipe.closeWriteEnd();
  await fill(url, 2 ** 18);
  child.kill('SIGTERM');
  t.is(await within(ended, 20_000), 0);
  pipe.closeReader();
});

test.serial('a reader that dies: requests are answered, and the process ends in order', async (t) => {
  const pipe = openFifo(await folderUntilEnd(t));
  const { url, child, ended } = await serve(t, ['ignore', pipe.writeEnd, pipe.writeEnd]);
  pipe.closeWriteEnd();
  pipe.closeReader();
  await fill(url, 5 * 2 ** 20);
  t.true((await dropped(url)) > 0);
  child.kill('SIGTERM');
  t.is(await within(ended, 20_000), 0);
});

test.serial('a full disk under the standard output: the start, requests and the end work', async (t) => {
  const full = openSync('/dev/full', 'w');
  const { url, child, ended } = await serve(t, ['ignore', full, full]);
  closeSync(full);
  await fill(url, 5 * 2 ** 20);
  t.true((await dropped(url)) > 0);
  child.kill('SIGTERM');
  t.is(await within(ended, 20_000), 0);
});

test.serial('a socket whose reader stalls: requests are answered', async (t) => {
  // Between two processes of Node, 'pipe' is a socket.
  const { url, child, ended } = await serve(t, ['ignore', 'pipe', 'ignore']);
  child.stdout!.pause();
  await fill(url, 5 * 2 ** 20);
  t.true((await dropped(url)) > 0);
  let text = '';
  child.stdout!.on('data', (piece: Buffer) => (text += piece.toString())).resume();
  await until(() => /lines of the log were dropped/.test(text));
  child.kill('SIGTERM');
  t.is(await within(ended, 20_000), 0);
});

test.serial('workers answer requests while the reader of their common pipe stalls', async (t) => {
  const pipe = openFifo(await folderUntilEnd(t));
  const settings = { ENTREPOT_WORKERS: '2', ENTREPOT_REDIS_URL: redisUrl() };
  const { url, child, ended } = await serve(t, ['ignore', pipe.writeEnd, pipe.writeEnd], settings);
  pipe.closeWriteEnd();
  await fill(url, 2 ** 20);
  t.true(await answers(`${url}/readyz`));
  child.kill('SIGTERM');
  t.is(await within(ended, 20_000), 0);
  pipe.closeReader();
});
