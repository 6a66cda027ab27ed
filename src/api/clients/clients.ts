import { z } from 'zod';
import type { Principal } from '../../accounts/principal.ts';
import {
  anyCertificate,
  clientForms,
  clientKinds,
  clients,
  clientText,
  type ClientKind,
} from '../../clients/client.ts';
import type { Config } from '../../config/schema.ts';
import { registriesOf } from '../../config/upstreams.ts';
import type { PublicUrls } from '../../http/urls.ts';
import {
  checkLine,
  checkResult,
  plainName,
  startClientCheck,
  type ClientCheckParts,
} from '../../policy/client-check.ts';
import { DomainError } from '../../runtime/errors.ts';
import { checkStates, type ClientCheck, type NotedRequest } from '../../usage/client-checks.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { count, time, timeOf } from '../framework/schemas.ts';

export interface ClientParts extends ClientCheckParts {
  config: Pick<Config, 'upstreams'>;
  /** The public URLs, as the request that is answered now has them. */
  urlsNow: () => PublicUrls;
}

const kind = z.enum(clientKinds, `expected one of ${clientKinds.join(', ')}`);
const form = z
  .enum(clientForms, `expected ${clientForms.join(' or ')}`)
  .default('mirror')
  .meta({
    description: 'mirror: names stay as they are, and the client asks this server; prefix: names begin with its host',
  });
const flag = (text: string) => z.enum(['0', '1'], 'expected 0 or 1').optional().meta({ description: text });

const textQuery = z.object({
  form,
  fallback: flag('1: the client asks the other registry, if this server does not have an image'),
  ca: flag('1: with a place for the certificate of a private authority'),
  credentials: flag('0: without a token, for readers that need none'),
});

const clientAnswer = z
  .strictObject({
    kind,
    files: z.array(
      z.strictObject({
        path: z.string().meta({ description: 'From the root of the machine; a name alone for a file of a repository' }),
        content: z.string().meta({ description: '`TOKEN` stands in the place of a token' }),
        secret: z.boolean().meta({ description: 'Whether it contains the token: then only its owner may read it' }),
      }),
    ),
    steps: z.array(z.strictObject({ text: z.string(), lines: z.string() })),
  })
  .meta({ id: 'ClientText' });

export const clientList = z
  .strictObject({
    items: z.array(z.strictObject({ kind, title: z.string() })),
    next_cursor: z.null(),
    registries: z.array(z.string()).meta({ description: 'The registries that the account gets through this server' }),
  })
  .meta({ id: 'Clients' });

const text = z.string().max(255).regex(plainName, 'expected letters, digits and . _ - / : @ +');
const checkBody = z
  .strictObject({
    client: kind,
    form,
    registry: text.optional().meta({ description: 'The registry that an image is asked of; by default the first one' }),
    denied: z.strictObject({ name: text, reference: text }).optional().meta({
      description: 'A name with its version or tag that a policy refuses; by default a name that only this check has',
    }),
  })
  .meta({ id: 'ClientCheckRequest' });

const clientCheck = z
  .strictObject({
    id: z.string(),
    client: kind,
    line: z.string().meta({ description: 'To run on the machine of the client' }),
    state: z.enum(checkStates).meta({
      description:
        'used: it asks this server; refused: it does, without a valid credential; served: it got what a policy refused when the check began; unused: no request came',
    }),
    conclusion: z.string(),
    created_at: time,
    expires_at: time,
    requests: z.array(
      z.strictObject({
        status: z.int(),
        reason: z.string().nullable(),
        has_credential: z.boolean(),
        account: z.enum(['own', 'other']).nullable().meta({
          description: 'null without a valid credential; of the clients of other accounts nothing else is shown',
        }),
        token_id: z.string().nullable(),
        address: z.string().nullable(),
        user_agent: z.string().nullable(),
        host: z.string().nullable().meta({ description: 'The name by which the client reached this server' }),
        path: z.string().nullable().meta({ description: 'A mirror of containerd adds `ns`, the name of the registry' }),
        count,
        first_at: time,
        last_at: time,
      }),
    ),
  })
  .meta({ id: 'ClientCheck' });

const allNames = 'A token with name patterns cannot check clients: a check shows which tokens they use.';

/** `/clients`: configurations for clients; `/client-checks`: whether they use this server. */
export function clientOperations(parts: ClientParts): Operation[] {
  const { config, urlsNow } = parts;
  const registries = ({ accountName }: Principal) => registriesOf(config.upstreams, accountName);
  const shown = async (id: string, accountId: number) => {
    const { check, requests } = await parts.checks.read(id, accountId);
    return checkItem(check, requests, parts.checks.now());
  };
  return [
    operation({
      method: 'get',
      path: '/clients',
      id: 'listClients',
      summary: 'List the clients for which this server writes configurations',
      action: 'read',
      status: 200,
      answer: clientList,
      run: async ({ principal }) => ({
        items: clientKinds.map((each) => ({ kind: each, title: clients[each].title })),
        next_cursor: null,
        registries: registries(principal),
      }),
    }),
    operation({
      method: 'get',
      path: '/clients/:kind',
      id: 'getClient',
      summary: 'Show the configuration of a client for this server, as the command `client` prints it',
      action: 'read',
      params: { kind: `One of ${clientKinds.join(', ')}` },
      query: textQuery,
      status: 200,
      answer: clientAnswer,
      run: async ({ principal, params, query }) => {
        const found = kind.safeParse(params['kind']);
        if (!found.success) {
          throw new DomainError('NotFound', `There is no such client; there are ${clientKinds.join(', ')}.`);
        }
        const { feed, registry } = urlsNow();
        const made = clientText(found.data, {
          feed,
          registry,
          registries: registries(principal),
          form: query.form,
          fallback: query.fallback === '1',
          ca: query.ca === '1' ? anyCertificate : undefined,
          credentials: query.credentials !== '0',
        });
        return { kind: found.data, ...made };
      },
    }),
    operation({
      method: 'post',
      path: '/client-checks',
      id: 'startClientCheck',
      summary: 'Check whether a client uses this server: the answer has a line to run there',
      action: 'admin',
      allNames,
      body: checkBody,
      status: 201,
      answer: clientCheck,
      run: async ({ principal, body }) => {
        const { client, form: wanted, registry, denied } = body;
        const host = new URL(urlsNow().registry).host;
        const { accountId } = principal;
        const check = await startClientCheck(parts, {
          accountId,
          client,
          form: wanted,
          host,
          registry,
          registries: registries(principal),
          denied,
        });
        return checkItem(check, [], check.createdAt);
      },
    }),
    operation({
      method: 'get',
      path: '/client-checks/:id',
      id: 'getClientCheck',
      summary: 'Show which requests have come for a check of a client, and what that means',
      action: 'admin',
      allNames,
      params: { id: 'The ID of the check' },
      status: 200,
      answer: clientCheck,
      run: ({ principal, params }) => shown(params['id']!, principal.accountId),
    }),
  ];
}

function checkItem(check: ClientCheck, requests: readonly NotedRequest[], now: number): z.input<typeof clientCheck> {
  return {
    id: check.id,
    client: check.client as ClientKind,
    line: checkLine(check),
    ...checkResult(check, requests, now),
    created_at: timeOf(check.createdAt),
    expires_at: timeOf(check.expiresAt),
    requests: requests.map((each) => {
      const isOther = each.accountId !== null && each.accountId !== check.accountId;
      const own = <T>(value: T) => (isOther ? null : value);
      return {
        status: each.status,
        reason: own(each.reason),
        has_credential: each.hasCredential,
        account: each.accountId === null ? null : isOther ? ('other' as const) : ('own' as const),
        token_id: own(each.tokenId),
        address: own(each.address),
        user_agent: own(each.agent),
        host: own(each.host),
        path: own(each.path),
        count: each.count,
        first_at: timeOf(each.firstAt),
        last_at: timeOf(each.lastAt),
      };
    }),
  };
}
