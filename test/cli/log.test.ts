import test from 'ava';
import { temporaryFolder } from '../support/clients/clients.ts';
import { startEntrepot } from '../support/processes/entrepot.ts';

test('each request has one complete line in the log, also a long one and the last one', async (t) => {
  const folder = await temporaryFolder();
  t.teardown(() => folder.remove());
  const server = await startEntrepot(folder.path, { ENTREPOT_LOG_LEVEL: 'info' });
  const paths = Array.from({ length: 60 }, (_, index) => `/v3/${index}/${'é'.repeat(index * 25)}`);
  await Promise.all(paths.map((path) => fetch(server.url + path).then((response) => response.arrayBuffer())));
  await server.stop();
  const lines = server
    .log()
    .trim()
    .split('\n')
    .map((each) => JSON.parse(each) as { msg: string; path: string });
  t.true(lines.some(({ msg }) => msg === 'closing'));
  const logged = lines.filter(({ msg }) => msg === 'request').map(({ path }) => decodeURI(path));
  t.deepEqual(logged.filter((path) => path !== '/readyz').sort(), paths.sort());
});
