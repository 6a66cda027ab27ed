import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { ExecutionContext } from 'ava';
import { exportJWK, generateKeyPair, SignJWT, type CryptoKey, type JWK, type JWTPayload } from 'jose';

export const audience = 'https://hub.example';

/** Answers a request for the keys or the discovery document instead of the issuer. */
type Answer = (request: IncomingMessage, response: ServerResponse) => void;

interface SignOptions {
  /** Header fields. */
  header?: Record<string, unknown>;
  key?: CryptoKey | Uint8Array;
}

/** An issuer of identity tokens on loopback: a CI. */
export interface TestIssuer {
  url: string;
  /** The keys that it publishes. */
  keys: JWK[];
  /** Paths that were requested, in order. */
  requests: string[];
  answers: { keys?: Answer; discovery?: Answer; token?: Answer; userinfo?: Answer };
  /** A signed token with these claims and the usual ones, which `undefined` removes. */
  sign(claims?: JWTPayload, options?: SignOptions): Promise<string>;
  /** The settings `trustedIssuers` and the rest. */
  trusted(more?: object): Record<string, unknown>;
}

let jti = 0;

/** Starts an issuer; it is closed when the test ends. `now` is in milliseconds. */
export async function startIssuer(t: Pick<ExecutionContext, 'teardown'>, now = Date.now): Promise<TestIssuer> {
  const { privateKey, publicKey } = await generateKeyPair('ES256', { extractable: true });
  const issuer: TestIssuer = {
    url: '',
    keys: [{ ...(await exportJWK(publicKey)), kid: 'first', alg: 'ES256', use: 'sig' }],
    requests: [],
    answers: {},
    sign: (claims = {}, { header = {}, key = privateKey } = {}) => {
      const seconds = Math.floor(now() / 1000);
      jti += 1;
      const usual = {
        iss: issuer.url,
        aud: audience,
        iat: seconds,
        nbf: seconds,
        exp: seconds + 300,
        jti: `jti-${jti}`,
      };
      const payload = Object.fromEntries(
        Object.entries({ sub: 'repo:team/app', ...usual, ...claims }).filter(([, value]) => value !== undefined),
      );
      return new SignJWT(payload).setProtectedHeader({ alg: 'ES256', kid: 'first', ...header }).sign(key);
    },
    trusted: (more = {}) => ({ name: 'github', issuer: issuer.url, audience, allowPrivateNetwork: true, ...more }),
  };
  const server = createServer((request, response) => {
    const path = request.url!;
    issuer.requests.push(path);
    const send = (value: unknown) => response.setHeader('content-type', 'application/json').end(JSON.stringify(value));
    if (path === '/keys') {
      if (issuer.answers.keys) issuer.answers.keys(request, response);
      else send({ keys: issuer.keys });
    } else if (path === '/.well-known/openid-configuration') {
      if (issuer.answers.discovery) issuer.answers.discovery(request, response);
      else send(discovered(issuer.url));
    } else if (path === '/token' && issuer.answers.token) {
      request.resume();
      response.setHeader('content-type', 'application/json');
      issuer.answers.token(request, response);
    } else if (path === '/userinfo' && issuer.answers.userinfo) {
      response.setHeader('content-type', 'application/json');
      issuer.answers.userinfo(request, response);
    } else {
      response.writeHead(404).end();
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  issuer.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return issuer;
}

function discovered(url: string): Record<string, unknown> {
  return {
    issuer: url,
    jwks_uri: `${url}/keys`,
    authorization_endpoint: `${url}/authorize`,
    token_endpoint: `${url}/token`,
    userinfo_endpoint: `${url}/userinfo`,
    response_types_supported: ['code'],
    subject_types_supported: ['public'],
    id_token_signing_alg_values_supported: ['ES256'],
    code_challenge_methods_supported: ['S256'],
  };
}
