import type { Config } from '../config/schema.ts';
import type { StorageDescription } from '../storage/drivers/driver.ts';

/**
 * What is wrong with redirects to S3: `problem` if clients would send their token along. Undefined without redirects.
 *
 * Clients that are written in Go send Authorization also to the same host name and to names below it (net/http,
 * `shouldCopyHeaderOnRedirect`). S3 refuses a request with a token and a signed URL.
 */
export function redirectState(
  { server }: Config,
  { redirectHost: target }: StorageDescription,
): { problem?: string; text: string } | undefined {
  if (target === undefined) return undefined;
  const text = `large downloads are redirected to ${target}, and their egress is an estimate`;
  const own = [server.baseUrl, server.feedUrl, server.registryUrl]
    .filter((url) => url !== undefined)
    .map((url) => new URL(url).hostname);
  const above = own.find((host) => target === host || target.endsWith(`.${host}`));
  if (above !== undefined)
    return {
      text,
      problem: `Docker and other clients send their token also to ${target}, because it is ${target === above ? '' : 'below '}the host ${above} of this server, and S3 then refuses them: set ENTREPOT_STORAGE_S3_PUBLIC_ENDPOINT to another host name, or ENTREPOT_STORAGE_S3_REDIRECT to false`,
    };
  if (own.length > 0) return { text };
  return { text: `${text}; set ENTREPOT_BASE_URL to check that this host is not below the one of this server` };
}
