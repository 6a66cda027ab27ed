import { startWithData } from '../test/support/console-data.ts';

// `npm run demo:console`: fills a server with made content and prints the address of its console and a token. It contacts no
// other host; its upstreams run in this process. Ctrl+C ends it and deletes everything.

const days = 60;
const ends: (() => unknown)[] = [];
const data = await startWithData({ teardown: (end) => void ends.push(end) }, { days, now: Date.now() });
const { server } = data;
// From now on, the time is that of this machine.
server.clock.now = undefined;
for (const path of [
  '/v3/package/contoso.typo/index.json',
  '/v2/ghcr.io/example/tool/manifests/v9',
  '/v2/team/api/manifests/9.9',
]) {
  await (await server.fetch(path)).arrayBuffer();
}
process.stdout.write(`
The console: ${server.url}/console/
A token:     ${server.token}

It shows ${days} days of a team: packages and images, an upstream that fails, requests that failed, vulnerable versions.
Press Ctrl+C to end.
`);
await new Promise((resolve) => process.once('SIGINT', resolve).once('SIGTERM', resolve));
for (const end of ends.toReversed()) await end();
