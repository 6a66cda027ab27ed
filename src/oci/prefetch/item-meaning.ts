import type { Config } from '../../config/schema.ts';
import type { ItemMeaning, PrefetchItem } from '../../prefetch/item.ts';
import { upstreamNamed } from '../mirrored/upstream-repository.ts';
import { isImage } from './image-item.ts';
import type { ImageName } from './image-name.ts';

/** What an image of a file means. Clients ask another server for one of a registry that is none of `upstreams`. */
export function imageMeaning(
  item: PrefetchItem,
  server: Config['server'],
  upstreams: readonly { name: string }[],
): ItemMeaning | undefined {
  if (!isImage(item)) return undefined;
  const { text, reference } = item.image;
  const names = namesOf(item.image, server).filter(
    ({ registry }) => registry === undefined || upstreams.some(({ name }) => name === registry),
  );
  return { text, names: names.map(({ name }) => name), reference: () => Promise.resolve(reference) };
}

/** Whether a name's host is this service itself: the rest is then a name as its clients ask for it. */
export function isOwnHost(registry: string, { baseUrl, registryUrl, host, port }: Config['server']): boolean {
  const own = [baseUrl, registryUrl].filter((each) => each !== undefined).map((each) => new URL(each).host);
  return [...own, `${host}:${port}`, `localhost:${port}`, `127.0.0.1:${port}`].includes(registry);
}

/** The names by which clients can ask this server for an image, each with the registry that it begins with. */
function namesOf({ registry, repository }: ImageName, server: Config['server']): { name: string; registry?: string }[] {
  const at = (known: string) => ({ name: `${known}/${repository}`, registry: known });
  // Docker takes a name without a registry from Docker Hub, also if that is not the default upstream here.
  if (registry === undefined) return [{ name: repository }, at('docker.io')];
  if (isOwnHost(registry, server)) return [{ name: repository }];
  return [at(upstreamNamed(registry))];
}
