import { protocolWords } from '../config/protocols.ts';
import { DomainError, isDomainError } from '../runtime/errors.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { UpstreamError } from '../upstream/upstream-error.ts';
import { urlBelow } from '../upstream/url.ts';
import { itemsOfList } from './document.ts';
import { sourceReason } from './import.ts';

/** Most repositories of one server. */
const maxRepositories = 1000;

/** A repository of Nexus whose content was pushed there. */
interface NexusRepository {
  /** The kind of upstream that speaks as it does. */
  kind: string;
  /** The address of its index, or of its registry. */
  address: URL;
}

/**
 * The hosted repositories of a running Nexus that can be imported, as its REST interface lists them. A proxy has the content of other
 * servers, and a group that of its members. Addresses are made here: those in the answer are of the name that Nexus thinks it has. Throws
 * `Invalid` if it lists none.
 */
export async function nexusRepositories(api: Upstream, signal: AbortSignal): Promise<NexusRepository[]> {
  const found: NexusRepository[] = [];
  const list = urlBelow(api.base, 'service', 'rest', 'v1', 'repositories');
  try {
    for await (const each of itemsOfList(api, list, { subject: 'repositories', signal })) {
      const { name, format, type } = (each ?? {}) as { name?: unknown; format?: unknown; type?: unknown };
      const words = protocolWords.find(({ nexusFormat }) => nexusFormat === format);
      // The characters that Nexus allows in a name.
      if (type !== 'hosted' || !words || typeof name !== 'string' || !/^\w[\w.-]{0,199}$/.test(name)) continue;
      if (found.length === maxRepositories)
        throw new DomainError('TooLarge', `The source lists more than ${maxRepositories} repositories.`);
      const below = urlBelow(api.base, 'repository', name);
      found.push({ kind: words.upstream, address: words.hasIndex ? urlBelow(below, 'index.json') : below });
    }
  } catch (error) {
    const isDenied = error instanceof UpstreamError && error.denied;
    if (!isDenied && !isDomainError(error, 'NotFound') && !isDomainError(error, 'Invalid'))
      throw error instanceof UpstreamError ? new DomainError(error.name, sourceReason(error), { cause: error }) : error;
    throw new DomainError(
      'Invalid',
      `${list.href} does not list the repositories. Import each one by its address: /repository/NAME/index.json of packages, and /repository/NAME/ of images.`,
      { cause: error },
    );
  }
  if (found.length > 0) return found;
  throw new DomainError(
    'Invalid',
    `${api.name} lists no hosted repository of packages or images for these credentials.`,
  );
}
