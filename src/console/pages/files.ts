/** Files that pages show or lead to, each with the operation of `/v1` that has it. */
export const pageFiles = [
  { path: '/packages/:id/:version/file', operation: 'getPackageFile' },
  { path: '/packages/:id/:version/icon', operation: 'getPackageIcon' },
  { path: '/bundles/receipt/file', operation: 'getBundleReceipt' },
  { path: '/bundles/:id/segments/:number', operation: 'getBundleSegment' },
] as const;
