import { randomBytes } from 'node:crypto';
import { mediaTypes } from '../../../src/oci/format/manifest.ts';
import { pushImage, pushPackage } from '../content.ts';
import type { Entrepot } from '../peers.ts';
import type { MadeImage } from '../store/tags.ts';
import { pick } from '../store/words.ts';
import { eachOf, type Client, type Work } from './client.ts';
import { busyHour, mirroredShare, restored, type Size } from './mix.ts';
import type { ReadPackage, SizeContent } from './store.ts';

/** As NuGet's client and docker do: requests of one restore, and downloads of one pull, at the same time. */
const [ofRestore, ofPull] = [16, 3];
const layerOfPush = 262_144;

type Random = () => number;

/** The work of the busy hour of a size. */
export async function workOf(client: Client, server: Entrepot, content: SizeContent, size: Size): Promise<Work[]> {
  const headers = (random: Random) => ({ authorization: `Bearer ${oneOf(content.tokens, random)}` });
  const somePackage = (random: Random): { mark: string; found: ReadPackage; version: string } => {
    const isMirrored = random() < mirroredShare.packages;
    const found = pick(isMirrored ? content.mirroredPackages : content.packages, random);
    return { mark: isMirrored ? 'mirrored ' : '', found, version: newOrOther(found.versions, random) };
  };
  const cookies = await eachSignIn(server, Math.min(20, size.developers));
  let pushed = 0;

  const restore = async (due: number, random: Random) => {
    const mine = headers(random);
    const wanted = Array.from({ length: restored.ids }, () => somePackage(random));
    await client.measure('a whole restore', due, async () => {
      await client.read('service index', '/v3/index.json', { headers: mine, due });
      await eachOf([...wanted.entries()], ofRestore, async ([index, { mark, found, version }]) => {
        const at = `/v3/package/${found.key}`;
        await client.read(`${mark}flat index`, `${at}/index.json`, { headers: mine });
        if (index >= restored.downloads) return;
        await client.download(`${mark}nupkg`, `${at}/${version}/${found.key}.${version}.nupkg`, mine);
      });
    });
  };
  const pull = async (due: number, random: Random) => {
    const isMirrored = random() < mirroredShare.images;
    const tags = pick(isMirrored ? content.mirroredRepositories : content.repositories, random);
    const mark = isMirrored ? 'mirrored ' : '';
    const { repository, tag, manifest, parts } = newOrOther<MadeImage>(tags, random);
    const [config, ...layers] = parts;
    const mine = { ...headers(random), accept: mediaTypes.image };
    const at = `/v2/${repository}`;
    await client.measure('a whole pull', due, async () => {
      const byTag = { headers: mine, method: 'HEAD', due };
      await client.read(`${mark}manifest by tag`, `${at}/manifests/${tag}`, byTag);
      const files = [
        ['manifest by digest', `${at}/manifests/${manifest.digest}`, manifest.size],
        ['config', `${at}/blobs/${config!.digest}`, config!.size],
      ] as const;
      for (const [kind, path, bytes] of files) await client.download(`${mark}${kind}`, path, mine, bytes);
      await eachOf(layers, ofPull, ({ digest, size: bytes }) =>
        client.download(`${mark}layer`, `${at}/blobs/${digest}`, mine, bytes),
      );
    });
  };
  const page = (random: Random): string => {
    const one = pick(content.packages, random);
    const [image] = pick(content.repositories, random);
    const pages = [
      '',
      'packages',
      `packages/${one.key}`,
      'images',
      `images/${encodeURIComponent(image!.repository)}`,
      `search?q=${one.key.slice(0, 6)}`,
    ];
    return `/console/${oneOf(pages, random)}`;
  };
  const one = (kind: string, path: (random: Random) => string) => (due: number, random: Random) =>
    client.read(kind, path(random), { headers: headers(random), due });

  const begins: Record<keyof ReturnType<typeof busyHour>, Work['begin']> = {
    restore,
    pull,
    registration: one(
      'registration index',
      (random) => `/v3/registration-gz-semver2/${somePackage(random).found.key}/index.json`,
    ),
    search: one('search', (random) => oneOf(content.searches, random)),
    page: (due, random) =>
      client.read('page of the console', page(random), { headers: { cookie: pick(cookies, random) }, due }),
    packagePush: (due, random) => {
      const { id } = pick(content.packages, random);
      pushed += 1;
      const options = { id, version: `9.0.${pushed}`, payloadBytes: 19_000 };
      return client.measure('push of a package', due, () =>
        pushPackage({ ...server, headers: headers(random) }, options),
      );
    },
    imagePush: (due, random) => {
      const [{ repository }] = pick(content.repositories, random) as [MadeImage];
      const peer = { ...server, headers: headers(random) };
      return client.measure('push of an image', due, () => pushImage(peer, repository, randomBytes(layerOfPush)));
    },
  };
  return Object.entries(busyHour(size)).map(([kind, perHour]) => ({
    perHour,
    begin: begins[kind as keyof typeof begins],
  }));
}

function oneOf<T>(all: readonly T[], random: Random): T {
  return all[Math.floor(random() * all.length)]!;
}

/** Mostly the newest. */
function newOrOther<T>(all: readonly T[], random: Random): T {
  return random() < 0.6 ? all.at(-1)! : oneOf(all, random);
}

async function eachSignIn({ url, token }: Entrepot, count: number): Promise<string[]> {
  const cookies: string[] = [];
  for (let index = 0; index < count; index += 1) {
    const body = new URLSearchParams({ token });
    const response = await fetch(`${url}/console/sign-in`, { method: 'POST', body, redirect: 'manual' });
    const [cookie] = response.headers.getSetCookie();
    if (cookie === undefined) throw new Error(`sign-in: ${response.status}`);
    cookies.push(cookie.split(';', 1)[0]!);
  }
  return cookies;
}
