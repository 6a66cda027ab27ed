import type { Entrepot } from '../peers.ts';
import { pushImage, pushPackage } from '../content.ts';
import type { Cloner } from './clones.ts';

/** Numbers of packages, and of tags; a package has ten versions, a repository a hundred tags. */
export interface Size {
  packages: number;
  tags: number;
}

export const versions = 10;
export const tagsOfRepository = 100;

/** The names of generated content. */
export const packageId = (number: number) => `Vendor${number % 5000}.Library${number}`;
export const repository = (number: number) => `team${number % 1000}/app${number}`;
/** A repository with a tenth of all tags. */
export const large = 'large/app';

/** Pushes one package and one image, and clones their rows in the database, with two connections if it can have two writers. */
export async function fill(cloner: Cloner, second: Cloner, server: Entrepot, size: Size): Promise<void> {
  for (let patch = 0; patch < versions; patch += 1)
    await pushPackage(server, {
      id: 'Vendor0.Library0',
      version: `1.0.${patch}`,
      description: 'A common library.',
      payloadBytes: 20_000,
      dependencyGroups: [{ targetFramework: 'net8.0', dependencies: [{ id: 'Contoso.Core', version: '1.0.0' }] }],
    });
  await pushImage(server, repository(0));
  await pushImage(server, large);
  const packages = fillPackages(cloner, size.packages - 1);
  if (second === cloner) await packages;
  await Promise.all([packages, fillImages(second, size.tags)]);
}

async function fillPackages(cloner: Cloner, count: number): Promise<void> {
  const [found] = await cloner.read("SELECT id FROM packages WHERE package_key = 'vendor0.library0'");
  const id = Number(found!['id']);
  const [newest] = await cloner.read(`SELECT MAX(id) AS id FROM package_versions WHERE package_row = ${id}`);
  const latest = Number(newest!['id']);
  const row = `${id} + n`;
  const version = (of: string) => `${of} + n * ${versions}`;
  const name = "CONCAT('Vendor', n % 5000, '.Library', n)";
  const views = ['latest_stable', 'latest_pre', 'latest_stable2', 'latest_pre2'];
  await cloner.clone('packages', `id = ${id}`, 1, count, {
    id: row,
    package_id: name,
    package_key: `LOWER(${name})`,
    standing: 'n % 60',
    download_count: '60 - n % 60',
    ...Object.fromEntries(views.map((view) => [view, version(String(latest))])),
  });
  const [terms] = await cloner.read(`SELECT COUNT(*) AS count FROM package_terms WHERE package_row = ${id}`);
  if (Number(terms!['count']) === 0) throw new Error('the package has no terms');
  await cloner.clone('package_terms', `package_row = ${id}`, 1, count, {
    package_row: row,
    term: "CASE WHEN made.term LIKE '%library0' THEN REPLACE(made.term, 'library0', CONCAT('library', n)) WHEN made.term LIKE '%vendor0%' THEN REPLACE(made.term, 'vendor0', CONCAT('vendor', n % 5000)) ELSE made.term END",
    standing: 'made.standing + n % 60',
  });
  for (const table of ['package_frameworks', 'package_dependencies'])
    await cloner.clone(table, `package_row = ${id}`, 1, count, { package_row: row });
  // The oldest version keeps the digest of the stored file, so that it can be downloaded.
  const digest = `CASE WHEN made.id = ${latest - versions + 1} THEN made.nupkg_digest ELSE CONCAT('sha256:', ${cloner.hex(version('made.id'))}) END`;
  await cloner.clone('package_versions', `package_row = ${id}`, 1, count, {
    id: version('made.id'),
    package_row: row,
    nupkg_digest: digest,
  });
  await cloner.clone(
    'package_blobs',
    `version_row BETWEEN ${latest - versions + 2} AND ${latest} AND digest IN (SELECT nupkg_digest FROM package_versions WHERE package_row = ${id})`,
    1,
    count,
    {
      version_row: version('made.version_row'),
      digest: `CONCAT('sha256:', ${cloner.hex(version('made.version_row'))})`,
    },
  );
  await cloner.clone(
    'blobs',
    `digest = (SELECT nupkg_digest FROM package_versions WHERE id = ${latest})`,
    latest + versions + 1,
    latest + (count + 1) * versions,
    {
      digest: `CONCAT('sha256:', ${cloner.hex('n')})`,
    },
  );
  await cloner.clone('events', "id = (SELECT MIN(id) FROM events WHERE type = 'package.published')", 1, count, {
    position: '1000000 + n',
    subject_name: name,
    subject_key: `LOWER(${name})`,
  });
}

async function fillImages(cloner: Cloner, tags: number): Promise<void> {
  const repositories = Math.floor((tags * 9) / 10 / tagsOfRepository);
  const [small] = await cloner.read(`SELECT id FROM repositories WHERE name = '${repository(0)}'`);
  const [big] = await cloner.read(`SELECT id FROM repositories WHERE name = '${large}'`);
  const [id, bigId] = [Number(small!['id']), Number(big!['id'])];
  const name = "CONCAT('team', n % 1000, '/app', n)";
  const base = Math.max(id, bigId);
  await cloner.clone('repositories', `id = ${id}`, 1, repositories, {
    id: `${base} + n`,
    name,
    tag_count: '100',
    manifest_count: '100',
  });
  await cloner.clone('repository_words', `name = '${repository(0)}'`, 1, repositories, {
    suffix: "CASE WHEN made.suffix LIKE 'team%' THEN CONCAT('team', n % 1000, '.app', n) ELSE CONCAT('app', n) END",
    name,
  });
  const [counted] = await cloner.read('SELECT MAX(id) AS id FROM manifests');
  const firstManifest = Number(counted!['id']);
  /** Clones `count` images into the repository `owner`, numbered through. The first of each keeps the stored content. */
  const images = async (owner: string, first: number, last: number, isFirst: string) => {
    const number = `${firstManifest} + n`;
    const own = (kind: number) => `CONCAT('sha256:', 'f', SUBSTR(${cloner.hex(`n * 4 + ${kind}`)}, 2))`;
    const digest = `CASE WHEN ${isFirst} THEN made.digest ELSE ${own(0)} END`;
    await cloner.clone('manifests', `repository_id = ${id}`, first, last, { id: number, repository_id: owner, digest });
    await cloner.clone('tags', `repository_id = ${id}`, first, last, {
      repository_id: owner,
      name: "CONCAT('1.', n)",
      sort_key: "CONCAT('1.', SUBSTR(CONCAT('000000000', n), -9))",
      digest,
    });
    const [layer] = await cloner.read(`SELECT MIN(digest) AS digest FROM repository_blobs WHERE repository_id = ${id}`);
    const kind = `CASE WHEN made.digest = '${String(layer!['digest'])}' THEN ${own(1)} ELSE ${own(2)} END`;
    await cloner.clone('repository_blobs', `repository_id = ${id}`, first, last, {
      repository_id: owner,
      digest: kind,
    });
    const [manifest] = await cloner.read(`SELECT id FROM manifests WHERE repository_id = ${id}`);
    await cloner.clone('manifest_references', `manifest_id = ${Number(manifest!['id'])}`, first, last, {
      manifest_id: number,
      digest: kind,
    });
    for (const each of [0, 1, 2])
      await cloner.clone('blobs', `digest = '${String(layer!['digest'])}'`, first, last, { digest: own(each) });
  };
  const inSmall = repositories * tagsOfRepository;
  await images(
    `${base} + 1 + (n - 1 - (n - 1) % ${tagsOfRepository}) / ${tagsOfRepository}`,
    1,
    inSmall,
    `n % ${tagsOfRepository} = 1`,
  );
  await images(String(bigId), inSmall + 1, tags, '1 = 0');
  await cloner.run(
    `UPDATE repositories SET tag_count = ${tags - inSmall + 1}, manifest_count = ${tags - inSmall + 1} WHERE id = ${bigId}`,
  );
}
