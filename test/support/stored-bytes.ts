import type { TestServer } from './server.ts';
import { until } from './until.ts';

/** Waits until the measured bytes of an account are at least `bytes`. A busy server uses an earlier measurement for a while. */
export async function untilStored(server: TestServer, bytes: number, token = server.token): Promise<void> {
  await until(async () => {
    const { usage } = (await (await server.fetch('/v1/account', { token })).json()) as {
      usage: { storage_bytes: number };
    };
    return usage.storage_bytes >= bytes;
  });
}
