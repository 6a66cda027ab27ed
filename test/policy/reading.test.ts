import test from 'ava';
import { parsePolicy } from '../../src/policy/document.ts';
import { readPolicy } from '../../src/policy/reading.ts';
import { longestAllowed, longestTurn } from '../support/longest-turn.ts';
import { slowTexts } from '../support/policy-texts.ts';
import { startTestServer } from '../support/server.ts';

// In a process of its own: it measures the process.

for (const [kind, text] of Object.entries(slowTexts)) {
  test.serial(`a policy of ${kind} is refused, and no other request waits for that`, async (t) => {
    const server = await startTestServer(t);
    const body = JSON.stringify({ text });
    const longest = await longestTurn(async () => {
      const response = await server.fetch('/v1/policy/check', {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body,
      });
      const answer = await response.text();
      t.is(response.status, 400, answer);
      t.true(answer.length < 2000);
    });
    t.true(longest < longestAllowed, `${longest} ms`);
  });
}

test.serial('a policy is read in a thread as by a command', async (t) => {
  t.is(await readPolicy('# nothing', 1), null);
  const text = 'mode: audit\nrules:\n  - name: a\n    packages: [A]\n    versions: "[1.0, 2.0)"\n    verdict: deny\n';
  const [here, there] = [parsePolicy(text)!, (await readPolicy(text, 1))!];
  t.deepEqual(there.written, here.written);
  for (const path of [['mode'], ['rules', 0, 'versions'], ['rules', 0, 'packages', 0]])
    t.is(there.placeOf(path), here.placeOf(path));
  t.is(there.placeOf(['rules', 0, 'versions']), 'line 5: ');
  const wrong = 'mode: on\n';
  const { message } = t.throws(() => parsePolicy(wrong));
  await t.throwsAsync(readPolicy(wrong, 1), { name: 'Invalid', message });
});
