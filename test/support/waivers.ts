import type { TestServer } from './server.ts';

/** An answer of `/v1/waivers`. */
export interface WaiverAnswer {
  status: number;
  id: number;
  state: string;
  detail: string;
  code: string;
  references: string[];
  is_own: boolean;
  requested_by: object | null;
  items: { id: number; name: string; state: string }[];
}

/** Calls `/v1/waivers` and what is below it. */
export async function waivers(
  server: TestServer,
  method: string,
  path = '',
  { token = server.token, body }: { token?: string | null; body?: object } = {},
): Promise<WaiverAnswer> {
  const headers = { 'content-type': 'application/json' };
  const init = { method, token, ...(body && { headers, body: JSON.stringify(body) }) };
  const response = await server.fetch(`/v1/waivers${path}`, init);
  const answer = response.status === 204 ? {} : ((await response.json()) as object);
  return { ...(answer as WaiverAnswer), status: response.status };
}

/** The body of a request that ends some days after the time of the server. */
export function wish(server: TestServer, name: string, references: string[], lifts: string, days = 30): object {
  const expires_at = new Date(server.clock.now! + days * 86_400_000).toISOString();
  const kind = name.includes('/') ? 'image' : 'package';
  return { kind, name, references, lifts, reason: 'the build needs it', expires_at };
}
