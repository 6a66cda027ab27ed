import type { TestServer } from './server.ts';
import { eventually } from './until.ts';

/** A browser without JavaScript: it keeps its cookies, and sends no token. */
export class Visitor {
  readonly #server: TestServer;
  /** The cookie of the session, as `name=value`. */
  cookie: string | undefined;
  /** That of the next notice. */
  #notice: string | undefined;

  constructor(server: TestServer) {
    this.#server = server;
  }

  /** A visitor that has signed in with the token of the server, or with `token`. */
  static async signedIn(server: TestServer, token = server.token): Promise<Visitor> {
    const visitor = new Visitor(server);
    const response = await visitor.send('/console/sign-in', { token });
    if (response.status !== 303) throw new Error(`sign-in answered ${response.status}`);
    return visitor;
  }

  async fetch(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    const cookies = [this.cookie, this.#notice].filter((each) => each !== undefined);
    if (cookies.length > 0) headers.set('cookie', cookies.join('; '));
    const response = await this.#server.fetch(path, { ...init, headers, token: null });
    for (const set of response.headers.getSetCookie()) {
      const kept = /Max-Age=0/.test(set) ? undefined : set.split(';', 1)[0];
      if (isNotice(set)) this.#notice = kept;
      else this.cookie = kept;
    }
    return response;
  }

  /** The HTML of a page. On a busy machine, it can be ready too late the first time. */
  async page(path: string): Promise<string> {
    const response = await eventually(
      () => this.fetch(path),
      ({ status }) => status !== 503,
    );
    if (response.status !== 200) throw new Error(`${path} answered ${response.status}`);
    return response.text();
  }

  /** Sends a form that is refused; resolves to the page that shows it again with its errors. */
  async refused(path: string, fields: Record<string, string> | [string, string][]): Promise<string> {
    return this.refusedPage(await this.send(path, fields));
  }

  /** The page that shows a form again, to which an answer leads. */
  refusedPage(answer: Response): Promise<string> {
    const location = answer.headers.get('location');
    if (answer.status !== 303 || !/[?&]refused=[\w-]{22}$/.test(location ?? '')) {
      throw new Error(`the form was not refused: ${answer.status} ${location}`);
    }
    return this.page(location!);
  }

  /** Sends a form from a page of the server. */
  send(path: string, fields: Record<string, string> | [string, string][], headers = {}): Promise<Response> {
    return this.fetch(path, {
      method: 'POST',
      body: new URLSearchParams(fields),
      headers: { 'sec-fetch-site': 'same-origin', ...headers },
    });
  }
}

function isNotice(set: string): boolean {
  return /^(__Host-)?entrepot-notice=/.test(set);
}

/** Where a form leads, with the key of the notice that the page there shows, such as `/console/claims (released)`. */
export function leadsTo(response: Response): string {
  const notice = response.headers.getSetCookie().find(isNotice);
  const key = /=([a-z-]+)\./.exec(notice ?? '')?.[1];
  return `${response.headers.get('location')}${key === undefined ? '' : ` (${key})`}`;
}
