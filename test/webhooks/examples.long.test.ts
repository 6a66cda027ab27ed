import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { findCommand } from '../../scripts/packages.ts';
import { execute } from '../support/clients/clients.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { allowLoopback, createWebhook, startReceiver, testOf } from '../support/receiver.ts';
import { startTestServer } from '../support/server.ts';

type Verify = (secret: string, headers: Record<string, string>, body: string) => boolean | Promise<boolean>;

async function exampleIn(language: string): Promise<string> {
  const text = await readFile(join(import.meta.dirname, '../../docs/webhooks.md'), 'utf8');
  return new RegExp(`\`\`\`${language}\\n([^]*?)\`\`\``).exec(text)![1]!;
}

test('the examples in docs/webhooks.md verify deliveries', async (t) => {
  const folder = await folderUntilEnd(t);
  const server = await startTestServer(t, allowLoopback);
  const receiver = await startReceiver(t);
  const { id, secret } = await createWebhook(server, receiver.url);
  const other = await createWebhook(server, receiver.url);
  await testOf(server, id);
  const { headers: received, body } = receiver.received[0]!;
  const headers = received as Record<string, string>;

  const script = join(folder, 'verify.mjs');
  await writeFile(script, await exampleIn('js'));
  const { verify: inNode } = (await import(script)) as { verify: Verify };
  const examples: [string, Verify][] = [['js', inNode]];
  const python = findCommand('python3');
  if (python !== undefined) {
    const program = `import json, sys\n${await exampleIn('python')}\ns, h, b = json.loads(sys.argv[1])\nprint(verify(s, h, b.encode()))\n`;
    const inPython: Verify = async (...values) => {
      const { code, stdout, stderr } = await execute(python, ['-c', program, JSON.stringify(values)]);
      if (code !== 0) throw new Error(stderr);
      return stdout.trim() === 'True';
    };
    examples.push(['python', inPython]);
  }
  const old = { ...headers, 'webhook-timestamp': String(Number(headers['webhook-timestamp']) - 301) };
  const two = { ...headers, 'webhook-signature': `v1,AAAA ${headers['webhook-signature']}` };
  for (const [language, verify] of examples) {
    t.true(await verify(secret, headers, body), language);
    t.true(await verify(secret, two, body), `${language}: during a rotation`);
    t.false(await verify(other.secret, headers, body), `${language}: another secret`);
    t.false(await verify(secret, headers, body.replace('default', 'defaulT')), `${language}: another body`);
    t.false(await verify(secret, old, body), `${language}: an old request`);
  }
});
