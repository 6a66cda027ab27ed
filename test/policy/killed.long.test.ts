import test from 'ava';
import { folderUntilEnd } from '../support/folder.ts';
import { startEntrepot } from '../support/processes/entrepot.ts';

const ruleOf = (name: string) => ({
  name,
  packages: Array.from({ length: 100 }, (_, each) => `${name}.${each}`),
  verdict: 'deny',
});

test('a server that is killed while policies are applied has one of them afterwards, whole', async (t) => {
  const folder = await folderUntilEnd(t);
  const documents = ['one', 'two'].map((name) => ({ rules: [ruleOf(name)] }));
  const server = await startEntrepot(folder);
  const headers = { authorization: `Bearer ${server.token}`, 'content-type': 'application/json' };
  const put = (document: object) =>
    fetch(`${server.url}/v1/policy?layer=all`, { method: 'PUT', headers, body: JSON.stringify(document) });
  t.is((await put(documents[0]!)).status, 200);
  let answered = 0;
  const putting = [0, 1].map(async (start) => {
    for (let at = start; ; at += 1) {
      const response = await put(documents[at % 2]!);
      if (response.status === 200) answered += 1;
      if (answered === 20) process.kill(server.pid, 'SIGKILL');
    }
  });
  await Promise.allSettled(putting);
  t.true(answered >= 20);
  await server.stop().catch(() => undefined);

  const again = await startEntrepot(folder, { ENTREPOT_BOOTSTRAP_TOKEN: server.token });
  t.teardown(() => again.stop());
  const response = await fetch(`${again.url}/v1/policy?layer=all`, { headers });
  const { policy, revision } = (await response.json()) as { policy: object; revision: number };
  t.true(documents.some((each) => JSON.stringify(each) === JSON.stringify(policy)));
  t.true(revision >= answered + 1, `${revision} after ${answered} answers`);
});
