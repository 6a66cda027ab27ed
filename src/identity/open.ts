import type { Logger } from 'pino';
import { typed } from '../runtime/command-name.ts';
import type { Accounts } from '../accounts/accounts.ts';
import type { People } from '../accounts/people.ts';
import type { Tokens } from '../accounts/tokens.ts';
import { ConfigError, readSecretFile } from '../config/load.ts';
import type { Config } from '../config/schema.ts';
import type { Database } from '../database/database.ts';
import type { ProxyEnvironment } from '../upstream/addresses.ts';
import { CheckedFetch } from '../upstream/checked-fetch.ts';
import { readProxies } from '../upstream/configured.ts';
import { TokenExchange } from './exchange.ts';
import type { IdentityTokens } from './identity-token.ts';
import { checkPublisher, issuerWarnings } from './publisher.ts';
import type { PersonSignIn } from './person-sign-in.ts';
import { Publishers } from './publishers.ts';

interface IdentityParts {
  config: Config;
  database: Database;
  accounts: Accounts;
  tokens: Tokens;
  people: People;
  proxy: ProxyEnvironment;
  log: Logger;
  /** Milliseconds since 1970. */
  now: () => number;
  /** A monotonic clock in milliseconds. */
  watch?: (() => number) | undefined;
}

/** The exchange of identity tokens, and the sign-in of people. */
export interface Identity {
  publishers: Publishers;
  exchange: TokenExchange;
  /** Undefined without the setting `signIn.oidc.issuer`. */
  signIn: PersonSignIn | undefined;
  /** What is unsafe or without effect in the settings, in sentences. */
  warnings: readonly string[];
  /** Closes the connections to issuers. */
  close(): void;
}

/**
 * Connections to the provider that people sign in with. A quarter of them sends answers, of which one address has two at a
 * time: slow ones of some addresses leave room for others.
 */
const signInConnections = 64;

/** How a host may be reached. */
interface Reached {
  allowPrivateNetwork: boolean;
  caFile?: string | undefined;
}

/** Throws `ConfigError` for a wrong rule, an unreadable file or a wrong proxy. */
export async function openIdentity({
  config,
  database,
  accounts,
  tokens,
  people,
  proxy,
  log,
  now,
  watch = now,
}: IdentityParts): Promise<Identity> {
  const proxies = readProxies(proxy);
  const opened: CheckedFetch[] = [];
  const open = ({ allowPrivateNetwork: allowPrivate, caFile }: Reached, key: string, connections?: number) => {
    const ca = caFile && readSecretFile(caFile, `${key}.caFile`);
    const fetch = new CheckedFetch({ allowPrivate, proxy: proxies, ca, connections });
    opened.push(fetch);
    return fetch;
  };
  const documents = config.trustedIssuers.map((settings, index) => open(settings, `trustedIssuers.${index}`));
  const { trustedIssuers } = config;
  const rules = config.publishers.map(({ name, account, issuer, claims, scopes, ...lists }) => {
    const isLimited = Object.values(lists).some((list) => list !== undefined);
    return { name, account, issuer, claims, scopes, patterns: isLimited ? lists : null };
  });
  for (const [index, rule] of rules.entries()) {
    try {
      checkPublisher(rule, trustedIssuers);
    } catch (error) {
      throw new ConfigError(`publishers.${index}: ${(error as Error).message}`, { cause: error });
    }
    const isSame = (other: (typeof rules)[number]) => other.name === rule.name && other.account === rule.account;
    if (rules.slice(0, index).some(isSame)) {
      throw new ConfigError(`publishers.${index}.name: there are two rules with this name for the same account`);
    }
  }
  const accountName = (id: number) => accounts.nameOf(id);
  const publishers = new Publishers({ database, tokens, issuers: trustedIssuers, settings: rules, accountName, now });
  await publishers.nameIssuers();
  const load = async (): Promise<IdentityTokens> => {
    const [{ IdentityTokens }, { IssuerKeys }] = await Promise.all([
      import('./identity-token.ts'),
      import('./issuer-keys.ts'),
    ]);
    const issuers = trustedIssuers.map((settings, index) => {
      const { [index]: document } = documents;
      return { settings, keys: new IssuerKeys(settings, (url) => document!.fetch(url), log, watch) };
    });
    return new IdentityTokens(issuers, now);
  };
  let loaded: Promise<IdentityTokens> | undefined;
  const identityTokens = () => (loaded ??= load());
  const { oidc } = config.signIn;
  let signIn: PersonSignIn | undefined;
  if (oidc.issuer !== undefined) {
    const { PersonSignIn } = await import('./person-sign-in.ts');
    signIn = new PersonSignIn({
      settings: oidc,
      fetch: open(oidc, 'signIn.oidc', signInConnections),
      people,
      log,
      now: watch,
    });
  }
  return {
    publishers,
    signIn,
    exchange: new TokenExchange({ database, accounts, tokens, publishers, identityTokens, now }),
    warnings: [
      ...trustedIssuers.flatMap((each) => issuerWarnings(each)),
      ...(await unknownAccounts(accounts, { publishers: rules, 'signIn.oidc.rules': oidc.rules })),
    ],
    close: () => {
      for (const each of opened) each.close();
    },
  };
}

/** Sentences about the rules of the settings whose account does not exist. */
async function unknownAccounts(
  accounts: Accounts,
  settings: Readonly<Record<string, readonly { account: string }[]>>,
): Promise<string[]> {
  const rules = Object.entries(settings).flatMap(([key, list]) =>
    list.map(({ account }, index) => ({ key: `${key}.${index}.account`, account })),
  );
  if (rules.length === 0) return [];
  const known = new Set((await accounts.list()).map(({ name }) => name));
  return rules
    .filter(({ account }) => !known.has(account))
    .map(
      ({ key, account }) =>
        `${key}: there is no account "${account}", so the rule gives nothing; create it with "${typed(`account create ${account}`)}", or correct the name`,
    );
}
