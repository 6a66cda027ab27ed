import { makeNupkg, type NupkgOptions } from './builders/nupkg.ts';
import type { TestServer } from './server.ts';
import { tokenOf } from './inside.ts';

/** A multipart form with one file, as NuGet's clients send it. */
export function packageForm(bytes: Buffer, boundary = 'made-boundary'): { body: Buffer; type: string } {
  const head = `--${boundary}\r\nContent-Type: application/octet-stream\r\nContent-Disposition: form-data; name=package; filename=package.nupkg\r\n\r\n`;
  return {
    body: Buffer.concat([Buffer.from(head), bytes, Buffer.from(`\r\n--${boundary}--\r\n`)]),
    type: `multipart/form-data; boundary="${boundary}"`,
  };
}

/** The feed of a test server, used with one token. */
export class TestFeed {
  readonly server: TestServer;
  readonly token: string;

  constructor(server: TestServer, token = server.token) {
    this.server = server;
    this.token = token;
  }

  /** The feed of another account. */
  static async ofAccount(server: TestServer, name: string, scopes = ['read', 'write', 'delete']): Promise<TestFeed> {
    return new TestFeed(server, await tokenOf(server, scopes, name));
  }

  /** `path` is below `/v3`, or an absolute address of this server. */
  fetch(path: string, init: RequestInit & { duplex?: 'half' } = {}): Promise<Response> {
    const local = path.startsWith(this.server.url) ? path.slice(this.server.url.length) : `/v3${path}`;
    return this.server.fetch(local, { token: this.token, ...init });
  }

  async json<T = any>(path: string): Promise<T> {
    const response = await this.fetch(path);
    if (response.status !== 200) throw new Error(`${path} answered ${response.status}: ${await response.text()}`);
    return (await response.json()) as T;
  }

  /** Pushes a package that is made from `options`, with the authentication header of NuGet's clients. */
  async push(options: NupkgOptions | Buffer = {}, path = '/push'): Promise<Response> {
    const { body, type } = packageForm(Buffer.isBuffer(options) ? options : await makeNupkg(options));
    return this.server.fetch(`/v3${path}`, {
      token: null,
      method: 'PUT',
      headers: { 'content-type': type, 'x-nuget-apikey': this.token },
      body: new Uint8Array(body),
    });
  }

  /** Pushes packages; throws if a push fails. */
  async publish(...packages: NupkgOptions[]): Promise<void> {
    for (const each of packages) {
      const response = await this.push(each);
      if (response.status !== 201) throw new Error(`${response.status}: ${await response.text()}`);
    }
  }
}
