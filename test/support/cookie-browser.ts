/** A browser that keeps the cookies of each host and port, and follows redirects only if it is told to. */
export class Browser {
  readonly #cookies = new Map<string, Map<string, string>>();

  /** Cookies for the origin of `url`, by name. */
  cookies(url: string): Map<string, string> {
    const { origin } = new URL(url);
    const known = this.#cookies.get(origin) ?? new Map<string, string>();
    this.#cookies.set(origin, known);
    return known;
  }

  async fetch(url: string, init: RequestInit = {}): Promise<Response> {
    const jar = this.cookies(url);
    const headers = new Headers(init.headers);
    if (jar.size > 0) headers.set('cookie', [...jar].map(([name, value]) => `${name}=${value}`).join('; '));
    const response = await fetch(url, { redirect: 'manual', ...init, headers });
    for (const set of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(set)!;
      if (/Max-Age=0|expires=Thu, 01 Jan 1970/i.test(set)) jar.delete(name!);
      else jar.set(name!, value!);
    }
    return response;
  }

  /** Follows redirects from `url`; stops before an address that `until` names. */
  async follow(url: string, until: (url: URL) => boolean = () => false): Promise<{ url: string; response: Response }> {
    let response = await this.fetch(url);
    let at = url;
    for (let count = 0; count < 20; count += 1) {
      const location = response.headers.get('location');
      if (location === null) return { url: at, response };
      const next = new URL(location, at);
      at = next.href;
      if (until(next)) return { url: at, response };
      response = await this.fetch(at);
    }
    throw new Error(`more than 20 redirects: ${at}`);
  }

  /** Sends a form from a page of the same origin. */
  send(url: string, fields: Record<string, string>): Promise<Response> {
    const headers = { 'sec-fetch-site': 'same-origin' };
    return this.fetch(url, { method: 'POST', body: new URLSearchParams(fields), headers });
  }
}
