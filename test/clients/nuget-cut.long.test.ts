import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryFolder } from '../support/clients/clients.ts';
import { dotnet } from '../support/clients/dotnet.ts';
import { startEntrepot } from '../support/processes/entrepot.ts';
import { serve, type Behaviour } from '../support/upstreams/faulty-upstream.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { testWith } from '../support/clients/test-with.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';

// An upstream that cuts every tenth body in the middle, like a bad network.

const count = 78;
const rounds = 2;
const withDotnet = testWith('dotnet');

withDotnet(
  'a restore through the mirror succeeds at least as often as a direct one while bodies are cut',
  async (t) => {
    const folder = await temporaryFolder();
    t.teardown(() => folder.remove());
    const feed = await UpstreamFeed.start(t);
    let bodies = 0;
    const references: Record<string, string> = {};
    for (let index = 0; index < count; index += 1) {
      const id = `Cut.Package${index}`;
      const key = id.toLowerCase();
      const nupkg = await makeNupkg({ id, version: '1.0.0', payloadBytes: 60_000 });
      await feed.offer({ id, versions: [{ version: '1.0.0', nupkg }] });
      const bytes = (cut: boolean): Behaviour =>
        serve(nupkg, { ranges: false, ...(cut && { until: Math.floor(nupkg.length / 2) }) });
      feed.upstream.on(`/flat/${key}/1.0.0/${key}.1.0.0.nupkg`, (request, response) => {
        bodies += 1;
        bytes(bodies % 10 === 0)(request, response);
      });
      references[id] = '1.0.0';
    }
    const restores = async (name: string, url: string): Promise<boolean> => {
      const user = await dotnet(join(folder.path, name), { url, username: 'api', password: 'none' });
      const project = await user.project('Program', references);
      return user.run('restore', project).then(
        () => true,
        () => false,
      );
    };
    const succeeded = { direct: 0, mirror: 0 };
    for (let round = 0; round < rounds; round += 1) {
      if (await restores(`direct-${round}`, `${feed.url}/index.json`)) succeeded.direct += 1;
      const data = join(folder.path, `mirror-${round}`);
      await mkdir(data);
      const mirror = await startEntrepot(data, {
        ENTREPOT_ANONYMOUS_READ: 'true',
        ENTREPOT_UPSTREAMS: JSON.stringify([feed.as('up.test')]),
      });
      if (await restores(`through-${round}`, `${mirror.url}/v3/index.json`)) succeeded.mirror += 1;
      await mirror.stop();
    }
    t.log(`${bodies} bodies, every tenth cut: ${JSON.stringify(succeeded)} of ${rounds}`);
    t.true(bodies > count * rounds, 'bodies were cut and fetched again');
    t.is(succeeded.mirror, rounds);
  },
);
