import type { z } from 'zod';
import { allow, allowedAs, allowLasting, forAction } from '../accounts/allow.ts';
import { ownerOf } from '../accounts/owner.ts';
import type { KnownPeople } from '../accounts/known-people.ts';
import type { People } from '../accounts/people.ts';
import type { PersonalTokenLimits } from '../accounts/personal-limits.ts';
import type { Principal } from '../accounts/principal.ts';
import type { Sessions } from '../accounts/sessions.ts';
import type { Tokens } from '../accounts/tokens.ts';
import { limitCost, type Cost } from '../http/limit.ts';
import { admit } from '../http/quota.ts';
import type { Jobs } from '../jobs/jobs.ts';
import type { TokenUses } from '../usage/token-uses.ts';
import type { FailedRequests } from '../usage/failed-requests.ts';
import type { Quota } from '../usage/quota.ts';
import type { OpenWebhooks } from '../webhooks/open.ts';
import { accountOperations, type AccountParts } from './account/account.ts';
import { auditOperations, type AuditParts } from './server/audit.ts';
import type { Exposure } from '../exposure/exposure.ts';
import type { ObservedBills } from '../exposure/observed-bills.ts';
import { exposedOperations } from './server/exposed.ts';
import { observedBillOperations } from './server/observed-bills.ts';
import { clientOperations, type ClientParts } from './clients/clients.ts';
import { claimOperations, type ReleasableClaims } from './content/claims.ts';
import type { AnsweredFile } from '../http/send-file.ts';
import { check, requireForm, type Operation, type Receiving } from './framework/operation.ts';
import { failedRequestOperations } from './server/failed-requests.ts';
import { jobOperations } from './server/jobs.ts';
import type { Instances } from '../instances/instances.ts';
import { instanceOperations } from './server/instances.ts';
import type { ImportRuns } from '../import/runs/import-runs.ts';
import { importRunOperations } from './imports/imports.ts';
import { bundleOperations, type BundleOperationParts } from './bundles/bundles.ts';
import { prefetchOperations, type PrefetchOperationParts } from './prefetch/prefetch.ts';
import type { Policies } from '../policy/policies.ts';
import type { HeldReferences } from '../policy/held.ts';
import type { PromotionRules } from '../promotion/rules.ts';
import { heldOperations } from './policy/held.ts';
import { policyOperations } from './policy/policy.ts';
import { promotionOperations, type PromotionOperationParts } from './promotions/promotions.ts';
import { promotionRuleOperations } from './promotions/rules.ts';
import { waiverOperations, type WaiverOperationParts } from './policy/waivers.ts';
import type { DeletedItems } from '../permanence/deleted.ts';
import type { Permanence } from '../permanence/permanence.ts';
import { deletedOperations } from './permanence/deleted.ts';
import { permanenceOperations } from './permanence/permanence.ts';
import { publisherOperations, type PublisherParts } from './publishers/publishers.ts';
import { sessionOperations } from './account/sessions.ts';
import { searchOperations, type SearchSource } from './content/search.ts';
import { explainOperations, type ExplainParts } from './upstreams/explain.ts';
import { grantOperations, type GrantParts } from './account/grants.ts';
import { meOperation } from './account/me.ts';
import { ownTokenOperations } from './account/own-tokens.ts';
import { peopleOperations } from './account/people.ts';
import { storageOperations, type StorageParts } from './account/storage.ts';
import { useOperations } from './account/uses.ts';
import { tokenOperations } from './account/tokens.ts';
import { upstreamOperations, type UpstreamOperationParts } from './upstreams/upstreams.ts';
import { webhookOperations } from './webhooks/webhooks.ts';

interface OperationParts
  extends
    AccountParts,
    AuditParts,
    Pick<GrantParts, 'grants' | 'access'>,
    StorageParts,
    Pick<ClientParts, 'checks' | 'urlsNow' | 'config'>,
    Pick<ExplainParts, 'isAbsent' | 'gate'>,
    Pick<WaiverOperationParts, 'waivers'>,
    Pick<PromotionOperationParts, 'promotions'> {
  protocols: StorageParts['protocols'] & ExplainParts['protocols'];
  tokens: Tokens;
  people: People;
  knownPeople: KnownPeople;
  personalLimits: PersonalTokenLimits;
  sessions: Sessions;
  publishers: Omit<PublisherParts, 'uses'>;
  failures: FailedRequests;
  uses: TokenUses;
  exposure: Exposure;
  bills: ObservedBills;
  jobs: Jobs;
  instances: Instances;
  webhooks: OpenWebhooks;
  upstreams: UpstreamOperationParts;
  prefetches: PrefetchOperationParts;
  bundles: Omit<BundleOperationParts, 'prefetches'>;
  imports: ImportRuns;
  policies: Policies;
  held: HeldReferences;
  permanence: Permanence;
  deleted: DeletedItems;
  /** How long a deletion can be undone; milliseconds. */
  deletedFor: number;
  promotionRules: PromotionRules;
  /** Operations of the protocols. */
  operations: readonly Operation[];
  searches: readonly SearchSource[];
  claims: readonly ReleasableClaims[];
}

/** The values of a request that are not checked yet. */
export interface Arguments {
  /** Path parameters, decoded. */
  params?: Readonly<Record<string, string>>;
  query?: unknown;
  body?: unknown;
}

/** All operations of `/v1`. */
export function createOperations(parts: OperationParts): Operation[] {
  return [
    ...parts.operations,
    ...searchOperations(parts.searches),
    ...claimOperations(parts.claims),
    ...tokenOperations(parts.tokens),
    ...grantOperations(parts),
    ...useOperations(parts.uses, parts.tokens),
    meOperation,
    ...ownTokenOperations(parts.tokens, parts.people, parts.personalLimits, parts.now),
    ...peopleOperations(parts.knownPeople, parts.personalLimits),
    ...publisherOperations({ ...parts.publishers, uses: parts.uses }),
    ...sessionOperations(parts.sessions),
    ...accountOperations(parts),
    ...storageOperations(parts),
    ...permanenceOperations(parts.permanence),
    ...deletedOperations(parts.deleted, parts.deletedFor),
    ...auditOperations(parts),
    ...exposedOperations(parts),
    ...observedBillOperations(parts.bills),
    ...failedRequestOperations(parts.failures, parts.tokens, (id) => parts.accounts.nameOf(id)),
    ...jobOperations(parts.jobs),
    ...instanceOperations(parts.instances),
    ...webhookOperations(parts.webhooks),
    ...upstreamOperations(parts.upstreams),
    ...explainOperations({ ...parts, ...parts.upstreams }),
    ...prefetchOperations(parts.prefetches),
    ...importRunOperations(parts.imports),
    ...bundleOperations({ ...parts.bundles, prefetches: parts.prefetches }),
    ...policyOperations(parts.policies, () => parts.jobs.launch('known-bad'), parts.now),
    ...heldOperations(parts.held, parts.failures, parts.tokens),
    ...clientOperations(parts),
    ...waiverOperations({ ...parts, accountName: (id) => parts.accounts.nameOf(id) }),
    ...promotionOperations({ ...parts, accountName: (id) => parts.accounts.nameOf(id) }),
    ...promotionRuleOperations(parts.promotionRules),
  ];
}

/**
 * Checks that `principal` may do the operation with the name in `params`. Returns the account that owns the name. Throws as
 * `allow` does.
 */
export function allowOperation(
  { subject, action, allNames, lasting }: Operation,
  principal: Principal,
  params: Readonly<Record<string, string>>,
): number | Promise<number> {
  allowedAs(principal, action, allNames);
  if (lasting) allowLasting(principal, action);
  if (!subject) return principal.accountId;
  const name = params[subject.param]!;
  const key = subject.keyOf?.(name) ?? name;
  allow(principal, action, subject.kind, key);
  return ownerOf(principal, subject.kind, key, action);
}

/** Calls operations in this process, with the checks of a request to `/v1`. */
export class Api {
  readonly #operations: ReadonlyMap<string, Operation>;
  readonly #quota: Quota;

  constructor(operations: readonly Operation[], quota: Quota) {
    this.#quota = quota;
    this.#operations = new Map(operations.map((each) => [each.id, each]));
  }

  /**
   * The answer of the operation `id`, whose schema is `answer`. Throws the domain errors of the operation, and `Invalid`
   * with the wrong fields in `detail.errors`.
   */
  async call<Answer extends z.ZodType>(
    id: string,
    answer: Answer,
    principal: Principal,
    { params = {}, query = {}, body }: Arguments = {},
  ): Promise<z.input<Answer>> {
    const operation = this.#operations.get(id);
    if (operation?.answer !== answer) throw new Error(`the operation ${id} has another answer`);
    return (await this.#run(operation, principal, { params, query, body })) as z.input<Answer>;
  }

  /** What the operation `id` costs, if that has a limit. */
  costOf(id: string): Cost | undefined {
    return this.#operations.get(id)?.cost;
  }

  /** As `call`, for an operation whose answer has no body. */
  async do(id: string, principal: Principal, { params = {}, query = {}, body }: Arguments = {}): Promise<void> {
    const operation = this.#operations.get(id);
    if (!operation || operation.answer || operation.sends) throw new Error(`the operation ${id} has an answer`);
    await this.#run(operation, principal, { params, query, body });
  }

  /** As `call`, for an operation whose answer is a file. */
  async open(
    id: string,
    principal: Principal,
    { params = {}, query = {}, body }: Arguments = {},
  ): Promise<AnsweredFile> {
    const operation = this.#operations.get(id);
    if (!operation?.sends) throw new Error(`the operation ${id} answers with no file`);
    return (await this.#run(operation, principal, { params, query, body })) as AnsweredFile;
  }

  /**
   * As `call`, for an operation that receives the form in the body of a request. Checks the limits of the account and of
   * the client before the body is read.
   */
  async receive<Answer extends z.ZodType>(
    id: string,
    answer: Answer,
    principal: Principal,
    receiving: Receiving,
    params: Readonly<Record<string, string>> = {},
  ): Promise<z.input<Answer>> {
    const operation = this.#operations.get(id);
    if (operation?.answer !== answer || !operation.receives?.fields)
      throw new Error(`the operation ${id} receives no form`);
    const { request, response } = receiving;
    const { cost, receives } = operation;
    const { stores } = receives;
    const owner = await allowOperation(operation, principal, params);
    requireForm(request);
    if (stores) await admit(this.#quota, request, response, principal);
    if (stores || cost) await limitCost(response, cost, stores);
    const sender = forAction(principal, operation.action);
    const call = { principal: sender, owner, params, query: undefined, body: undefined, receiving };
    return (await operation.run(call)) as z.input<Answer>;
  }

  async #run(
    operation: Operation,
    principal: Principal,
    { params, query, body }: Required<Arguments>,
  ): Promise<unknown> {
    const owner = await allowOperation(operation, principal, params);
    if (operation.receives) throw new Error(`the operation ${operation.id} receives a form`);
    return operation.run({
      principal: forAction(principal, operation.action),
      owner,
      params,
      query: operation.query && check(operation.query, query, 'query'),
      body: operation.body && check(operation.body, body, 'body'),
      receiving: undefined,
    });
  }
}
