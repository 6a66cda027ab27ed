import test from 'ava';
import { createToken } from '../support/inside.ts';
import { longestAllowed, longestTurn } from '../support/longest-turn.ts';
import { startTestServer } from '../support/server.ts';
import { Visitor } from '../support/visitor.ts';

// In a process of its own: it measures the process.

for (const [what, scope, path, fields] of [
  ['many beginnings of a token', 'read', '/console/waivers/new', { reason: 'eyJ-'.repeat(16_000) }],
  ['a long row of spaces', 'read', '/console/waivers/new', { references: `1.0.0${' '.repeat(64_000)}2.0.0` }],
  ['many values of one claim', 'admin', '/console/publishers/new', { name: 'ci', claims: 'sub\n'.repeat(10_000) }],
] as const) {
  test.serial(`a form with ${what} is refused, and no other request waits for that`, async (t) => {
    const server = await startTestServer(t);
    const visitor = await Visitor.signedIn(server, (await createToken(server, ['read', scope])).value);
    const longest = await longestTurn(async () => {
      const response = await visitor.send(path, { ...fields });
      await response.text();
      t.regex(response.headers.get('location')!, /\?refused=/);
    });
    t.true(longest < longestAllowed, `${longest} ms`);
  });
}
