import type { Scope } from '../../src/accounts/principal.ts';
import type { ShownContent } from '../support/console-data.ts';

export interface TestedPage {
  /** The address of the page, with the data of `startWithData`. */
  at: (data: ShownContent) => string;
  /** The scopes that a visitor needs for it. */
  scopes: readonly Scope[];
  /** Other scopes of which one is enough instead. */
  also?: readonly Scope[];
  /** Of the answer; 200 by default. */
  status?: number;
}

/** Every page of the console by its path. Each test with all pages takes them from here. */
export const testedPages: Readonly<Record<string, TestedPage>> = {
  '/': { at: () => '/console/', scopes: ['read'] },
  '/search': { at: () => '/console/search?q=contoso', scopes: ['read'] },
  '/risks': { at: () => '/console/risks', scopes: ['read'] },
  '/packages': { at: () => '/console/packages', scopes: ['read'] },
  '/packages/:id': { at: (data) => `/console/packages/${data.package}`, scopes: ['read'] },
  '/packages/:id/:version': { at: (data) => `/console/packages/${data.package}/${data.version}`, scopes: ['read'] },
  '/packages/:id/delete': {
    at: (data) => `/console/packages/${data.package}/delete?version=${data.version}`,
    scopes: ['read', 'delete'],
  },
  '/packages/:id/listing': {
    at: (data) => `/console/packages/${data.package}/listing`,
    scopes: ['read'],
    status: 422,
  },
  '/packages/:id/deprecation': {
    at: (data) => `/console/packages/${data.package}/deprecation`,
    scopes: ['read', 'write'],
  },
  '/packages/:id/deprecation/change': {
    at: (data) => `/console/packages/${data.package}/deprecation/change?version=${data.version}`,
    scopes: ['read', 'write'],
  },
  '/packages/:id/advisories/:advisory/delete': {
    at: (data) => `/console/packages/${data.package}/advisories/${data.advisoryId}/delete`,
    scopes: ['read', 'write'],
  },
  '/upload': { at: () => '/console/upload', scopes: ['write'] },
  '/imports': { at: () => '/console/imports', scopes: ['admin'] },
  '/imports/:id': { at: ({ movingId }) => `/console/imports/${movingId}`, scopes: ['admin'] },
  '/mirror': { at: () => '/console/mirror', scopes: ['operate'] },
  '/mirror/:id': { at: ({ upstream }) => `/console/mirror/${upstream}`, scopes: ['operate'] },
  '/mirror/:id/drop': {
    at: ({ upstream, entryId }) => `/console/mirror/${upstream}/drop?entry=${entryId}`,
    scopes: ['operate', 'delete'],
  },
  '/prefetch': { at: () => '/console/prefetch', scopes: ['operate'] },
  '/bundles': { at: () => '/console/bundles?show=keys', scopes: ['operate'] },
  '/bundles/new': { at: () => '/console/bundles/new', scopes: ['operate'] },
  '/bundles/:id': { at: ({ makingId }) => `/console/bundles/${makingId}`, scopes: ['operate'] },
  '/bundles/imports/:id': { at: ({ importId }) => `/console/bundles/imports/${importId}`, scopes: ['operate'] },
  '/bundles/imports/:id/segments': {
    at: ({ importId }) => `/console/bundles/imports/${importId}/segments`,
    scopes: ['operate'],
  },
  '/prefetch/:id': { at: ({ prefetchId }) => `/console/prefetch/${prefetchId}`, scopes: ['operate'] },
  '/webhooks': { at: () => '/console/webhooks', scopes: ['admin'] },
  '/webhooks/new': { at: () => '/console/webhooks/new', scopes: ['admin'] },
  '/webhooks/:id': { at: ({ webhookId }) => `/console/webhooks/${webhookId}`, scopes: ['admin', 'operate'] },
  '/webhooks/:id/secret': {
    at: ({ webhookId }) => `/console/webhooks/${webhookId}/secret`,
    scopes: ['admin', 'operate'],
  },
  '/webhooks/:id/delete': {
    at: ({ webhookId }) => `/console/webhooks/${webhookId}/delete`,
    scopes: ['admin', 'operate'],
  },
  '/webhooks/:id/deliveries/:delivery': {
    at: ({ webhookId, deliveryId }) => `/console/webhooks/${webhookId}/deliveries/${deliveryId}`,
    scopes: ['admin', 'operate'],
  },
  '/publishers': { at: () => '/console/publishers', scopes: ['admin'] },
  '/publishers/new': { at: () => '/console/publishers/new', scopes: ['admin'] },
  '/publishers/explain': { at: () => '/console/publishers/explain', scopes: ['admin'] },
  '/publishers/:id': { at: ({ ruleId }) => `/console/publishers/${ruleId}`, scopes: ['admin'] },
  '/publishers/:id/use': { at: ({ ruleId }) => `/console/publishers/${ruleId}/use`, scopes: ['admin'] },
  '/publishers/:id/delete': { at: ({ ruleId }) => `/console/publishers/${ruleId}/delete`, scopes: ['admin'] },
  '/images': { at: () => '/console/images', scopes: ['read'] },
  '/images/:name': { at: ({ image }) => `/console/images/${encodeURIComponent(image)}`, scopes: ['read'] },
  '/images/:name/delete': {
    at: ({ image, tag }) => `/console/images/${encodeURIComponent(image)}/delete?tag=${tag}`,
    scopes: ['read', 'delete'],
  },
  '/images/:name/:digest': {
    at: ({ image, digest }) => `/console/images/${encodeURIComponent(image)}/${encodeURIComponent(digest)}`,
    scopes: ['read'],
  },
  '/deleted': { at: () => '/console/deleted', scopes: ['read', 'delete'] },
  '/deleted/:id': { at: () => '/console/deleted/1', scopes: ['admin'] },
  '/permanence': { at: () => '/console/permanence', scopes: ['read'] },
  '/claims': { at: () => '/console/claims', scopes: ['admin'] },
  '/claims/release': { at: () => '/console/claims/release?kind=package&name=contoso.legacy', scopes: ['admin'] },
  '/policy': { at: () => '/console/policy', scopes: ['read'] },
  '/waivers': { at: () => '/console/waivers', scopes: ['read'] },
  '/waivers/new': { at: () => '/console/waivers/new', scopes: ['read'] },
  '/waivers/:id': { at: ({ waiverId }) => `/console/waivers/${waiverId}`, scopes: ['read'] },
  '/promotions': { at: () => '/console/promotions', scopes: ['read'] },
  '/promotions/new': { at: () => '/console/promotions/new', scopes: ['promote'] },
  '/promotions/rules': { at: () => '/console/promotions/rules', scopes: ['read', 'admin'] },
  '/promotions/:id': { at: ({ promotionId }) => `/console/promotions/${promotionId}`, scopes: ['read'] },
  '/storage': { at: () => '/console/storage', scopes: ['read'] },
  '/usage': { at: () => '/console/usage', scopes: ['read'] },
  '/tokens': { at: () => '/console/tokens', scopes: ['admin'] },
  '/tokens/new': { at: () => '/console/tokens/new', scopes: ['admin'] },
  '/tokens/find': { at: () => '/console/tokens/find', scopes: ['admin'] },
  '/tokens/:id': { at: ({ tokenId }) => `/console/tokens/${tokenId}`, scopes: ['admin'] },
  '/tokens/revoke': { at: ({ tokenId }) => `/console/tokens/revoke?id=${tokenId}`, scopes: ['admin'] },
  '/access': { at: () => '/console/access', scopes: ['admin'] },
  '/access/new': { at: () => '/console/access/new', scopes: ['admin'] },
  '/access/explain': {
    at: () => '/console/access/explain?who=group&id=developers&verb=write&kind=package&name=Contoso',
    scopes: ['admin'],
  },
  '/access/:id': { at: ({ grantId }) => `/console/access/${grantId}`, scopes: ['admin'] },
  '/people': { at: () => '/console/people', scopes: ['admin'] },
  '/people/limits': { at: () => '/console/people/limits', scopes: ['read', 'admin'] },
  '/people/:id': { at: ({ personId }) => `/console/people/${personId}`, scopes: ['admin'] },
  '/sessions': { at: () => '/console/sessions', scopes: ['admin'] },
  '/sessions/:id': { at: ({ sessionId }) => `/console/sessions/${sessionId}`, scopes: ['admin'] },
  '/jobs': { at: () => '/console/jobs', scopes: ['operate'] },
  '/jobs/:name': { at: () => '/console/jobs/scrub', scopes: ['operate'] },
  '/instances': { at: () => '/console/instances', scopes: ['operate'] },
  '/audit': { at: () => '/console/audit', scopes: ['admin'], also: ['operate'] },
  '/exposed': { at: () => '/console/exposed?what=GHSA-none', scopes: ['admin'], also: ['operate'] },
  '/exposed/bills': { at: () => '/console/exposed/bills', scopes: ['admin', 'read'] },
  '/failures': { at: () => '/console/failures', scopes: ['admin'], also: ['operate'] },
  '/explain': { at: ({ package: name }) => `/console/explain?kind=package&name=${name}`, scopes: ['read', 'operate'] },
  '/connect': { at: () => '/console/connect', scopes: ['read'] },
};

/** Pages of people, who have own tokens. The visitors of these tests have tokens; console/person-sign-in shows the pages. */
export const pagesOfPeople = ['/my-tokens', '/my-tokens/:id'];

/** Pages that are in no list: those of a visitor who has not signed in, and errors. */
export const otherPages: Readonly<Record<string, TestedPage & { signedIn: boolean; status: number }>> = {
  'sign-in': { at: () => '/console/sign-in', scopes: [], signedIn: false, status: 200 },
  'not found': { at: () => '/console/none', scopes: [], signedIn: true, status: 404 },
  'not found, not signed in': { at: () => '/console/none', scopes: [], signedIn: false, status: 404 },
  'a wrong filter': { at: () => '/console/audit?type=wrong', scopes: [], signedIn: true, status: 400 },
};
