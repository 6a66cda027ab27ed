import test from 'ava';
import { hashToken } from '../../src/accounts/token-value.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { databaseOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';

test('a chosen first token has at least 32 characters, and a shorter one of before works with a warning', async (t) => {
  const short = 'x'.repeat(31);
  await t.throwsAsync(startTestServer(t, { bootstrapToken: short }), {
    name: 'ConfigError',
    message: /^ENTREPOT_BOOTSTRAP_TOKEN: a new token needs at least 32 characters/,
  });
  const data = await folderUntilEnd(t);
  const first = await startTestServer(t, { data, bootstrapToken: `${short}x` });
  t.is((await first.fetch('/v1/account', { token: `${short}x` })).status, 200);
  t.false(first.lines.some((line) => line.includes('bootstrapToken')));
  await databaseOf(first).transaction((tx) => tx.run('UPDATE tokens SET hash = ?', [hashToken(short)]));
  await first.close();
  const second = await startTestServer(t, { data, bootstrapToken: short });
  t.regex(second.lines.join(''), /bootstrapToken has fewer than 32 characters: create a longer token/);
  const tokens = (await (await second.fetch('/v1/tokens', { token: short })).json()) as { items: unknown[] };
  t.is(tokens.items.length, 1, 'no other one was made');
});
