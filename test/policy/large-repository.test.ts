import test from 'ava';
import { databaseOf, flushUses, rowsOf } from '../support/inside.ts';
import { day, now, putPolicy, startMirrors } from '../support/policy.ts';
import { digestOf, ociIndex, ociManifest } from '../support/registry.ts';
import { dialects } from '../support/databases.ts';

// Repositories with more stored manifests than a policy searches for the one that names a blob or an image.

for (const dialect of dialects) {
  test(`${dialect}: clients get the layers and children of what they pull, also if much else was used later`, async (t) => {
    const { registry, server } = await startMirrors(t, dialect);
    const fetch = (path: string) => server.fetch(`/v2/registry.test/team/app/${path}`);
    const statusOf = async (path: string) => (await fetch(path)).status;
    const old = registry.image('team/app', 'old');
    const child = registry.image('team/app', 'child').manifest;
    const manifests = [{ mediaType: ociManifest, digest: child.digest, size: child.size }];
    registry.manifest('team/app', { schemaVersion: 2, mediaType: ociIndex, manifests }, 'multi');
    registry.image('team/app', 'other');
    for (const tag of ['old', 'multi', 'other']) t.is(await statusOf(`manifests/${tag}`), 200);
    await flushUses(server);
    const [other] = await rowsOf<Record<string, string | number>>(
      server,
      "SELECT * FROM mirror_entries WHERE reference = 'other'",
    );
    const later = Array.from({ length: 1001 }, (_, at) => ({
      ...other,
      id: `0${String(at).padStart(63, '0')}`,
      reference: digestOf(`${at}`),
      used_at: now + day,
      stored_at: now + day,
    }));
    await databaseOf(server).transaction((tx) => tx.insertNew('mirror_entries', later));
    server.clock.now = now + 2 * day;
    await putPolicy(server, { minimumAge: { images: '2d' } });

    t.is(await statusOf(`blobs/${old.layer.digest}`), 403, 'no image that was used lately has it');
    t.is(await statusOf('manifests/old'), 200);
    t.is(await statusOf(`blobs/${old.layer.digest}`), 200);
    t.is(await statusOf('manifests/multi'), 200);
    t.is(await statusOf(`manifests/${child.digest}`), 200);
    const used = await rowsOf<{ used_at: number }>(
      server,
      `SELECT used_at FROM mirror_entries WHERE reference = '${later[0]!.reference}'`,
    );
    t.like(used, [{ used_at: now + day }], 'a search is no use');
  });
}
