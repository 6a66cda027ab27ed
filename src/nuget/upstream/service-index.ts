import { isList } from './reading/json.ts';
import type { DocumentReading } from './documents.ts';

/** Most characters of an address in a service index; a longer one is ignored. */
const addressLimit = 2048;

/** The resources of a service index (service-index, "Resources"): the first address of each type. */
export type Resources = ReadonlyMap<string, string>;

/** The resources of a service index. */
export const serviceResources: DocumentReading<Resources, 'short'> = {
  kind: 'short',
  options: () => ({ of: 'service-index' }),
  make: ([text]) => {
    const { resources } = JSON.parse(text!) as { resources?: unknown };
    if (!isList(resources)) throw new Error('it is no service index');
    const read = readResources(resources);
    return { value: read, items: read.size };
  },
};

function readResources(list: readonly unknown[]): Resources {
  const resources = new Map<string, string>();
  for (const each of list) {
    const { '@id': id, '@type': type } = (each ?? {}) as Record<string, unknown>;
    if (typeof id !== 'string' || id.length > addressLimit) continue;
    if (!/^https?:\/\//i.test(id) || !URL.canParse(id)) continue;
    for (const name of Array.isArray(type) ? type : [type]) {
      if (typeof name === 'string' && !resources.has(name)) resources.set(name, id);
    }
  }
  return resources;
}
