import { discard } from '../../upstream/body.ts';
import { baseOf } from '../../upstream/configured.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { urlBelow } from '../../upstream/url.ts';

/** Docker Hub announces its limit in the headers of a manifest; a HEAD request does not count against it. */
export async function askRateLimit(upstream: Upstream): Promise<void> {
  if (upstream.name !== 'docker.io') return;
  const subject = 'ratelimitpreview/test';
  const url = urlBelow(baseOf(upstream.config).origin, 'v2', ...subject.split('/'), 'manifests', 'latest');
  const answer = await upstream.send({ method: 'HEAD', url, subject, scope: `repository:${subject}:pull` });
  discard(answer.body);
}
